#include "atoll/serve/kv_desk.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/process.h"
#include "atoll/base/random.h"
#include "atoll/kv/blob.h"
#include "atoll/weights/shared_work.h"

namespace atl::serve {
namespace {

constexpr int64_t kPagesOfChunk = kv::kChunkTokens / model::KvPool::kPagePositions;
constexpr size_t kAhead = 3;      // Chunks that are asked for before they are opened.
constexpr size_t kMostPuts = 64;  // That wait for their neighbour.
constexpr double kNewest = 0.3;   // Its share of what is known of a speed.
constexpr size_t kMostInMessage = size_t{3} << 20;  // Bytes of blobs: a frame holds 4 MiB.
constexpr double kSlowest = 1.25e6;  // Bytes a second; who is slower is not waited for.
constexpr size_t kMostOrders = 64;
constexpr Duration kNoHurry = std::chrono::hours(1);

kv::BlobHead head_of(const KvDeskOptions& options, int32_t layer, int64_t begin) {
  return {.model = options.model,
          .first_layer = layer,
          .end_layer = layer + 1,
          .num_channels = static_cast<uint32_t>(options.shape.num_channels()),
          .begin = begin,
          .num_tokens = static_cast<uint32_t>(kv::kChunkTokens)};
}

Duration patience(const KvDeskOptions& options, double bytes) {
  return options.patience +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bytes / kSlowest));
}

int64_t bytes_of(const KeptPages& kept) {
  int64_t bytes = 0;
  for (const at::Tensor& page : kept.pages) bytes += static_cast<int64_t>(page.nbytes());
  return bytes;
}

}  // namespace

KvDesk::KvDesk(KvDeskOptions options, Hooks hooks, const Clock& clock)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      clock_(clock),
      store_(options_.store, hooks_.tell),
      last_number_(random_id()),
      keeper_([this] { run_keeping(); }),
      restorer_([this] { run_restoring(); }) {}

KvDesk::~KvDesk() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  keeper_.join();
  restorer_.join();
}

void KvDesk::keep(KeptPages pages) {
  const MutexLock lock(mutex_);
  to_keep_bytes_ += bytes_of(pages);
  to_keep_.push_back(std::move(pages));
  while (to_keep_bytes_ > options_.queue_bytes) {  // More is read than can be kept.
    to_keep_bytes_ -= bytes_of(to_keep_.front());
    to_keep_.pop_front();
  }
  changed_.notify_all();
}

void KvDesk::restore(chain::Restore order, chain::Span pages_layers) {
  const MutexLock lock(mutex_);
  if (to_restore_.size() >= kMostOrders) return;  // Its gateway does not wait for ever.
  to_restore_.push_back({std::move(order), pages_layers});
  changed_.notify_all();
}

chain::Fetched KvDesk::fetch(const chain::Fetch& question) {
  chain::Fetched answer{.number = question.number, .blobs = {}};
  size_t bytes = 0;
  for (const kv::BlobName& name : question.names) {
    const kv::SharedBlob blob = bytes < kMostInMessage ? store_.get(name) : nullptr;
    const bool fits = blob != nullptr && bytes + blob->size() <= kMostInMessage;
    answer.blobs.push_back(fits ? *blob : Bytes());  // Who lacks more asks again.
    bytes += answer.blobs.back().size();
  }
  return answer;
}

chain::Stored KvDesk::store(chain::Store message) {
  for (chain::NamedBlob& each : message.blobs) {
    // What is here may be good, and who sends it not.
    if (store_.has(each.name)) continue;
    store_.put(each.name, std::make_shared<const Bytes>(std::move(each.blob)));
  }
  return {.number = message.number};
}

void KvDesk::hear(chain::Fetched answer) {
  const MutexLock lock(mutex_);
  const auto found = answers_.find(answer.number);
  if (found == answers_.end()) return;
  found->second = std::move(answer);
  changed_.notify_all();
}

void KvDesk::hear(const chain::Stored& answer) {
  const MutexLock lock(mutex_);
  if (!sent_ || puts_.front().message.number != answer.number) return;
  const double took = std::max(seconds(clock_.now() - *sent_), 1e-6);
  const double speed = puts_.front().work / took;
  speed_ = speed_ == 0 ? speed : (1 - kNewest) * speed_ + kNewest * speed;
  puts_.pop_front();
  sent_.reset();
  changed_.notify_all();
}

double KvDesk::neighbour_speed() const {
  const MutexLock lock(mutex_);
  return speed_;
}

/// One is under way at a time: so its answer tells how quick the line is.
void KvDesk::send_next(Time now) {
  if (sent_ && now - *sent_ > patience(options_, puts_.front().bytes)) {
    const std::string silent = puts_.front().address;
    std::erase_if(puts_, [&](const Put& put) { return put.address == silent; });
    sent_.reset();
  }
  if (sent_ || puts_.empty() || now < next_send_) return;
  const Put& put = puts_.front();
  sent_ = now;
  next_send_ = now + std::chrono::duration_cast<Duration>(
                         std::chrono::duration<double>(put.bytes / options_.neighbour_rate));
  hooks_.send(put.address, put.message);
}

Duration KvDesk::until_send(Time now) const {
  if (sent_) return *sent_ + patience(options_, puts_.front().bytes) - now;
  return puts_.empty() ? kNoHurry : next_send_ - now;
}

void KvDesk::run_restoring() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return stops_ || !to_restore_.empty(); });
    if (stops_) return;
    const Order order = std::move(to_restore_.front());
    to_restore_.pop_front();
    lock.unlock();
    std::vector<at::Tensor> pages = find(order.restore, order.pages_layers);
    hooks_.restored(order.restore, order.pages_layers, std::move(pages));
    lock.lock();
  }
}

void KvDesk::run_keeping() {
  yield_to_others();
  MutexLock lock(mutex_);
  while (!stops_) {
    const Time now = clock_.now();
    send_next(now);
    if (!to_keep_.empty()) {
      const KeptPages pages = std::move(to_keep_.front());
      to_keep_.pop_front();
      to_keep_bytes_ -= bytes_of(pages);
      lock.unlock();
      code(pages);
      lock.lock();
    } else {
      changed_.wait_for(lock, std::max<Duration>(until_send(now), std::chrono::milliseconds(1)));
    }
  }
}

void KvDesk::code(const KeptPages& kept) {
  const auto count = static_cast<size_t>(kept.layers.size());
  std::vector<chain::NamedBlob> copies;
  for (size_t i = 0; i < count; ++i) {
    const int32_t layer = kept.layers.begin + static_cast<int32_t>(i);
    const kv::BlobName name = kv::name_of(kept.group, kept.chunk, layer);
    const auto bits = model::bits_2CT(kept.pages, layer - kept.first_layer, options_.shape);
    const Bytes blob = kv::encode_blob(head_of(options_, layer, kept.begin), bits);
    copies.push_back({.name = name, .blob = kv::seal(blob, name, kept.chunk)});
    store_.put(name, std::make_shared<const Bytes>(copies.back().blob));
  }
  if (kept.neighbour.empty() || options_.neighbour_rate <= 0) return;
  std::vector<chain::NamedBlob> together;
  size_t bytes = 0;
  const auto send = [&] {
    const auto work = static_cast<double>(together.size() * kv::kChunkTokens);
    if (!together.empty()) put(kept.neighbour, std::exchange(together, {}), work);
    bytes = 0;
  };
  for (chain::NamedBlob& copy : copies) {
    if (copy.blob.size() > kMostInMessage) continue;
    if (bytes + copy.blob.size() > kMostInMessage) send();
    bytes += copy.blob.size();
    together.push_back(std::move(copy));
  }
  send();
}

void KvDesk::put(const std::string& address, std::vector<chain::NamedBlob> blobs, double work) {
  Put put{.address = address, .message = {.number = 0, .blobs = std::move(blobs)}, .work = work};
  for (const chain::NamedBlob& each : put.message.blobs) {
    put.bytes += static_cast<double>(each.blob.size());
  }
  const MutexLock lock(mutex_);
  put.message.number = ++last_number_;
  puts_.push_back(std::move(put));
  // Of those that wait the oldest are the likeliest to be wanted no more; one is under way.
  if (puts_.size() > kMostPuts) puts_.erase(puts_.begin() + (sent_ ? 1 : 0));
}

KvDesk::Gathering KvDesk::begin_gathering(const Order& order, size_t chunk) {
  Gathering gathering{.chunk = chunk, .names = {}, .blobs = {}, .are_own = {}};
  const chain::Restore& said = order.restore;
  for (int32_t layer = said.layers.begin; layer < said.layers.end; ++layer) {
    gathering.names.push_back(kv::name_of(said.group, said.chunks[chunk], layer));
    gathering.blobs.push_back(store_.get(gathering.names.back()));
    gathering.are_own.push_back(gathering.blobs.back() != nullptr);
  }
  ask(order, gathering);
  return gathering;
}

/// Who has had some of it is asked for what is missing, else the next holder; nobody, where nothing
/// is, or nobody is left.
void KvDesk::ask(const Order& order, Gathering& gathering) {
  gathering.question = 0;
  chain::Fetch question;
  for (size_t i = 0; i < gathering.names.size(); ++i) {
    if (gathering.blobs[i] == nullptr) question.names.push_back(gathering.names[i]);
  }
  const std::vector<std::string>& holders = order.restore.holders;
  if (!std::exchange(gathering.has_helped, false)) ++gathering.next_holder;
  if (question.names.empty() || gathering.next_holder > holders.size()) return;
  {
    const MutexLock lock(mutex_);
    gathering.question = question.number = ++last_number_;
    answers_[question.number];
  }
  gathering.asked = clock_.now();
  hooks_.send(holders[gathering.next_holder - 1], question);
}

/// Waits until all of the chunk is here. False: it is not to be had.
bool KvDesk::gather(const Order& order, Gathering& gathering) {
  while (gathering.question != 0) {
    std::optional<chain::Fetched> answer;
    {
      MutexLock lock(mutex_);
      // Answers come one after the other.
      const Time since = std::max(gathering.asked, last_answer_);
      changed_.wait_for(lock, since + patience(options_, kMostInMessage) - clock_.now(),
                        [&]() ATOLL_REQUIRES(mutex_) {
                          return stops_ || answers_.at(gathering.question).has_value();
                        });
      answer = std::move(answers_.at(gathering.question));
      answers_.erase(gathering.question);
      last_answer_ = clock_.now();
      if (stops_) return false;
    }
    size_t next = 0;
    for (size_t i = 0; answer && i < gathering.names.size(); ++i) {
      if (gathering.blobs[i] != nullptr) continue;
      if (next >= answer->blobs.size()) break;
      Bytes& blob = answer->blobs[next++];
      if (blob.empty()) continue;
      gathering.blobs[i] = std::make_shared<const Bytes>(std::move(blob));
      gathering.has_helped = true;
    }
    ask(order, gathering);
  }
  return std::ranges::all_of(gathering.blobs, [](const auto& blob) { return blob != nullptr; });
}

/// False: some of it is damaged. That is not kept any more, and what is good is.
bool KvDesk::open(const Order& order, const Gathering& gathering,
                  std::span<const at::Tensor> pages) {
  const kv::Chunk& chunk = order.restore.chunks[gathering.chunk];
  const int64_t begin = static_cast<int64_t>(gathering.chunk) * kv::kChunkTokens;
  std::atomic<bool> is_good = true;
  weights::share_work(gathering.names.size(), options_.num_threads, [&](size_t i) {
    const int32_t layer = order.restore.layers.begin + static_cast<int32_t>(i);
    try {
      const Bytes blob = kv::unseal(*gathering.blobs[i], gathering.names[i], chunk);
      const auto bits = kv::decode_blob(blob, head_of(options_, layer, begin));
      model::write_bits(bits, layer - order.pages_layers.begin, options_.shape, pages);
      if (!gathering.are_own[i]) store_.put(gathering.names[i], gathering.blobs[i]);
    } catch (const InputError&) {
      is_good = false;
      store_.remove(gathering.names[i]);
    }
  });
  return is_good;
}

std::vector<at::Tensor> KvDesk::find(const chain::Restore& restore, chain::Span pages_layers,
                                     size_t first) {
  const Order order{restore, pages_layers};
  std::vector<at::Tensor> pages;
  std::deque<Gathering> ahead;
  size_t next = first;
  const int64_t page = 2 * options_.shape.num_channels() * model::KvPool::kPagePositions;
  while (next < order.restore.chunks.size() || !ahead.empty()) {
    while (next < order.restore.chunks.size() && ahead.size() < kAhead) {
      ahead.push_back(begin_gathering(order, next++));
    }
    Gathering gathering = std::move(ahead.front());
    ahead.pop_front();
    if (!gather(order, gathering)) break;
    std::vector<at::Tensor> own;
    for (int64_t i = 0; i < kPagesOfChunk; ++i) {
      // Layers that were not asked for hold nothing of anybody's.
      own.push_back(at::zeros({order.pages_layers.size(), 2, page / 2},
                              at::TensorOptions().dtype(at::kBFloat16)));
    }
    if (!open(order, gathering, own)) break;
    std::ranges::move(own, std::back_inserter(pages));
  }
  const MutexLock lock(mutex_);
  for (const Gathering& left : ahead) answers_.erase(left.question);
  return pages;
}

}  // namespace atl::serve
