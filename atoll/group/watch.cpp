#include "atoll/group/watch.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "atoll/base/process.h"

namespace atl::group {
namespace {

using std::chrono::milliseconds;

constexpr Duration kPeriod = milliseconds(1000);
/// When something went wrong: a process that is gone is told from one that only heard of it.
constexpr Duration kClosePeriod = milliseconds(200);
constexpr Duration kCloseLimit = milliseconds(2500);
constexpr int64_t kCloseLooks = 8;
/// At any time: a process that was stopped itself, and goes on, gives the others time for a sign.
constexpr int64_t kFewestLooks = 4;
/// Until whoever is gone is found, or it is left unsaid.
constexpr Duration kExplainPatience = milliseconds(8000);
/// For process 0, until the others have heard why it ends.
constexpr Duration kLastWordsPatience = milliseconds(2000);
constexpr const char* kVerdict = "lost";
constexpr const char* kHeard = "heard";
/// The first letter of a verdict, and of the last sign of who ended by itself.
constexpr char kLost = '?';
constexpr char kEnded = '!';

std::string sign_key(int64_t rank) { return fmt::format("sign/{}", rank); }
std::string host_key(int64_t rank) { return fmt::format("host/{}", rank); }

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

void Watch::announce(c10d::Store& store, const run::ProcessPlace& place) {
  write(store, sign_key(place.rank), "0");
  write(store, host_key(place.rank), machine_name());
}

Watch::Watch(Store store, const run::ProcessPlace& place, Duration limit, const Clock& clock,
             AnswerTimer& timer)
    : store_(std::move(store)), place_(place), limit_(limit), clock_(clock), timer_(timer) {
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<Verdict> Watch::verdict() const {
  const MutexLock lock(mutex_);
  return verdict_;
}

Verdict Watch::explain(const std::string& what_went_wrong) {
  MutexLock lock(mutex_);
  is_suspicious_ = true;
  changed_.notify_all();
  const auto is_clear = [&]() ATOLL_REQUIRES(mutex_) { return verdict_.has_value(); };
  if (changed_.wait_for(lock, kExplainPatience, is_clear)) return *verdict_;
  return {.text = fmt::format("the processes of this island lost each other ({})", what_went_wrong),
          .is_lost = true};
}

void Watch::leave(const std::string& reason) {
  MutexLock lock(mutex_);
  last_words_ = reason;
  changed_.notify_all();
  const auto is_over = [&]() ATOLL_REQUIRES(mutex_) { return has_left_; };
  changed_.wait_for(lock, 2 * kLastWordsPatience, is_over);
}

void Watch::let_others_hear() {
  MutexLock lock(mutex_);
  const auto is_over = [&]() ATOLL_REQUIRES(mutex_) { return has_left_ || !verdict_; };
  changed_.wait_for(lock, 2 * kLastWordsPatience, is_over);
}

void Watch::wait_for_readers(int64_t count) {
  const Time begin = clock_.now();
  while (store_->add(kHeard, 0) < count && clock_.now() - begin < kLastWordsPatience) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  const MutexLock lock(mutex_);
  has_left_ = true;
  changed_.notify_all();
}

std::string Watch::name_of(int64_t rank) const {
  const auto found = seen_.find(rank);
  const std::string host = found == seen_.end() ? "" : found->second.host;
  return fmt::format("process {} of this island{}{}", rank,
                     host.empty() ? "" : fmt::format(" (on {})", host),
                     rank == 0 ? ", which leads," : "");
}

void Watch::decide(Verdict verdict) {
  const MutexLock lock(mutex_);
  if (!verdict_) verdict_ = std::move(verdict);
  changed_.notify_all();
}

void Watch::run() {
  while (true) {
    std::optional<std::string> last_words;
    Duration period{};
    {
      MutexLock lock(mutex_);
      if (ends_) return;
      last_words = last_words_;
      period = is_suspicious_ ? kClosePeriod : kPeriod;
    }
    try {
      if (last_words) {
        if (place_.leads()) {
          write_verdict({.text = fmt::format("{} ended: {}", name_of(0), *last_words)});
          wait_for_readers(place_.size - 1);
        } else {
          write(*store_, sign_key(place_.rank), kEnded + *last_words);
        }
      } else {
        look();
      }
      timer_.answered();
    } catch (const std::exception&) {  // The store is gone.
      decide({.text = fmt::format("{} has ended", name_of(0)), .is_lost = true});
      timer_.stop();
      last_words.emplace();
    }
    MutexLock lock(mutex_);
    if (last_words) {
      has_left_ = true;
      changed_.notify_all();
      return;
    }
    if (ends_ || last_words_) continue;
    changed_.wait_for(lock, period);
  }
}

void Watch::write_verdict(const Verdict& verdict) {
  write(*store_, kVerdict, (verdict.is_lost ? kLost : kEnded) + verdict.text);
}

void Watch::look() {
  write(*store_, sign_key(place_.rank), fmt::format("{}", ++num_signs_));
  if (verdict()) return;
  if (!place_.leads()) {
    look_at(0);
    const auto told = read(*store_, kVerdict, Duration::zero());
    if (!told) return;
    decide({.text = told->substr(1), .is_lost = *told->begin() == kLost});
    store_->add(kHeard, 1);
    return;
  }
  for (int64_t rank = 1; rank < place_.size; ++rank) look_at(rank);
  const auto found = verdict();
  if (!found) return;
  write_verdict(*found);
  wait_for_readers(place_.size - 2);  // All but it and the lost one.
}

void Watch::look_at(int64_t rank) {
  const std::string sign = text_of(store_->get(sign_key(rank)));
  const auto [found, is_new] = seen_.try_emplace(rank);
  Seen& seen = found->second;
  if (is_new) seen.host = text_of(store_->get(host_key(rank)));
  if (is_new || seen.sign != sign) {
    seen.sign = sign;
    seen.since = clock_.now();
    seen.num_looks = 0;
  }
  ++seen.num_looks;
  if (sign.starts_with(kEnded)) {
    decide({.text = fmt::format("{} ended: {}", name_of(rank), sign.substr(1))});
  }
  const Duration silence = clock_.now() - seen.since;
  // Process 0 says whom it misses: a moment for that before it is missed itself.
  const int64_t turns = rank == 0 ? 2 : 1;
  bool is_gone = silence >= limit_ && seen.num_looks > kFewestLooks;
  if (seen.num_looks > turns * kCloseLooks && silence >= turns * kCloseLimit) {
    const MutexLock lock(mutex_);
    is_gone = is_gone || is_suspicious_;
  }
  if (is_gone) {
    decide({.text = fmt::format("{} gave no sign of life for {:.0f} s", name_of(rank),
                                seconds(silence)),
            .is_lost = true});
  }
}

}  // namespace atl::group
