#include "atoll/serve/part_lender.h"

#include <algorithm>

#include "atoll/base/process.h"

namespace atl::serve {
PartLender::PartLender(PartLenderOptions options, chain::PeerLines& lines, const Clock& clock,
                       std::function<bool()> is_busy)
    : options_(std::move(options)), lines_(lines), clock_(clock), is_busy_(std::move(is_busy)) {
  thread_ = std::thread([this] { run(); });
}

PartLender::~PartLender() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool PartLender::ask(net::ConnectionId line, chain::Want want) {
  const MutexLock lock(mutex_);
  const auto count =
      std::ranges::count(waiting_, line, [](const auto& each) { return each.first; });
  if (count >= static_cast<int64_t>(kMostWaiting)) return false;
  waiting_.emplace_back(line, std::move(want));
  changed_.notify_all();
  return true;
}

void PartLender::forget(net::ConnectionId line) {
  const MutexLock lock(mutex_);
  std::erase_if(waiting_, [&](const auto& each) { return each.first == line; });
}

void PartLender::run() {
  yield_to_others();
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    const auto [line, want] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const Time begin = clock_.now();
    const auto bits = 8.0 * static_cast<double>(answer(line, want));
    double rate = options_.bits_per_second;
    if (rate == 0 && is_busy_()) rate = options_.busy_bits_per_second;
    const Duration rest = rate == 0 ? Duration{} : duration_of(bits / rate);
    lock.lock();
    changed_.wait_for(lock, begin + rest - clock_.now(),
                      [&]() ATOLL_REQUIRES(mutex_) { return is_ending_; });
  }
}

size_t PartLender::answer(net::ConnectionId line, const chain::Want& want) {
  chain::Piece piece{.model = want.model, .part = want.part, .piece = want.piece, .bytes = {}};
  if (options_.read) {
    if (auto bytes = options_.read(want)) piece.bytes = *std::move(bytes);
  }
  const size_t size = piece.bytes.size();
  lines_.send(line, piece);
  return size;
}

}  // namespace atl::serve
