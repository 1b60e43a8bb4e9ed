#include "atoll/serve/kv_desk.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/process.h"
#include "atoll/base/random.h"

namespace atl::serve {
namespace {

constexpr size_t kMostPuts = 64;  // That wait for their neighbour.
constexpr double kNewest = 0.3;   // Its share of what is known of a speed, or a size.
// Of what a layer has in memory, before anything is known of its blobs.
constexpr double kExactShare = 0.7;
constexpr double kRoundedShare = 0.1;
constexpr double kSlowest = 1.25e6;  // Bytes a second; who is slower is not waited for.
constexpr size_t kMostOrders = 64;
constexpr size_t kMostPurged = 1024;
constexpr Duration kPurgedFor = std::chrono::minutes(1);
constexpr Duration kNoHurry = std::chrono::hours(1);

int64_t bytes_of(const KeptPages& kept) {
  int64_t bytes = 0;
  for (const at::Tensor& page : kept.pages) bytes += static_cast<int64_t>(page.nbytes());
  return bytes;
}

void blend(double& known, double newest) {
  known = known == 0 ? newest : (1 - kNewest) * known + kNewest * newest;
}

/// Before anything is known.
std::vector<double> guessed_bytes(const ChunkCoder& coder) {
  const auto raw = static_cast<double>(2 * sizeof(uint16_t) * kv::kChunkTokens) *
                   static_cast<double>(coder.shape().num_channels());
  std::vector<double> bytes(coder.num_levels(), kRoundedShare * raw);
  bytes[0] = kExactShare * raw;
  return bytes;
}

}  // namespace

KvDesk::KvDesk(KvDeskOptions options, Hooks hooks, const Clock& clock)
    : options_(std::move(options)),
      coder_(options_.model, options_.shape, options_.rounding),
      hooks_(std::move(hooks)),
      clock_(clock),
      store_(options_.store, hooks_.tell),
      layer_bytes_(guessed_bytes(coder_)),
      last_number_(random_id()),
      keeper_([this] { run_keeping(); }),
      restorer_([this] { run_restoring(); }) {}

KvDesk::~KvDesk() {
  stop();
  keeper_.join();
  restorer_.join();
  store_.remove_purged();
}

void KvDesk::stop() {
  const MutexLock lock(mutex_);
  stops_ = true;
  changed_.notify_all();
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
  to_restore_.push_back(
      {.restore = std::move(order), .pages_layers = pages_layers, .begun = clock_.now()});
  changed_.notify_all();
}

chain::Fetched KvDesk::fetch(const chain::Fetch& question) {
  chain::Fetched answer{.number = question.number, .blobs = {}};
  size_t bytes = 0;
  for (const kv::BlobName& name : question.names) {
    const bool is_sought = bytes < kMostInMessage && !was_purged(name.group);
    const kv::SharedBlob blob = is_sought ? store_.get(name) : nullptr;
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
    put_away(each.name, std::make_shared<const Bytes>(std::move(each.blob)));
  }
  return {.number = message.number};
}

void KvDesk::purge(const Digest& group) {
  const MutexLock lock(mutex_);
  const Time now = clock_.now();
  std::erase_if(purged_, [&](const auto& entry) { return now - entry.second > kPurgedFor; });
  if (purged_.size() >= kMostPurged) {
    purged_.erase(
        std::ranges::min_element(purged_, {}, [](const auto& entry) { return entry.second; }));
  }
  purged_[group] = now;
  std::erase_if(to_keep_, [&](const KeptPages& pages) {
    if (pages.group != group) return false;
    to_keep_bytes_ -= bytes_of(pages);
    return true;
  });
  // Names of a message are of one group; the neighbour passes over one that is under way.
  const auto is_of_it = [&](const Put& put) {
    return put.message.blobs.front().name.group == group;
  };
  puts_.erase(std::remove_if(puts_.begin() + (sent_ ? 1 : 0), puts_.end(), is_of_it), puts_.end());
  store_.purge(group);
  has_purged_ = true;
  changed_.notify_all();
}

bool KvDesk::is_purged(const Digest& group) const {
  const auto found = purged_.find(group);
  return found != purged_.end() && clock_.now() - found->second <= kPurgedFor;
}

bool KvDesk::was_purged(const Digest& group) const {
  const MutexLock lock(mutex_);
  return is_purged(group);
}

/// In the store, but what is to be kept no more, nor was when it was put there.
void KvDesk::put_away(const kv::BlobName& name, kv::SharedBlob blob) {
  if (was_purged(name.group)) return;
  store_.put(name, std::move(blob));
  if (was_purged(name.group)) store_.remove(name);
}

void KvDesk::hear(const std::string& holder, chain::Fetched answer) {
  const MutexLock lock(mutex_);
  const auto found = questions_.find(answer.number);
  if (found == questions_.end()) return;
  Question& question = found->second;
  if (question.answer || question.holder != holder) return;
  double bytes = 0;
  for (const Bytes& blob : answer.blobs) bytes += static_cast<double>(blob.size());
  const Time now = clock_.now();
  // Answers come one after the other.
  const Duration took = now - std::max(question.asked, last_answer_);
  if (bytes > 0) fetch_rates_.note(question.holder, bytes, took, now);
  last_answer_ = now;
  question.answer = std::move(answer);
  changed_.notify_all();
}

void KvDesk::hear(const chain::Stored& answer) {
  const MutexLock lock(mutex_);
  if (!sent_ || puts_.front().message.number != answer.number) return;
  const double took = std::max(seconds(clock_.now() - *sent_), 1e-6);
  blend(speed_, puts_.front().work / took);
  puts_.pop_front();
  sent_.reset();
  changed_.notify_all();
}

double KvDesk::neighbour_speed() const {
  const MutexLock lock(mutex_);
  return speed_;
}

Duration KvDesk::patience(double bytes) const {
  return options_.patience +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bytes / kSlowest));
}

/// One is under way at a time: so its answer tells how quick the line is.
void KvDesk::send_next(Time now) {
  if (sent_ && now - *sent_ > patience(puts_.front().bytes)) {
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
  if (sent_) return *sent_ + patience(puts_.front().bytes) - now;
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
    hooks_.restored(order.restore, order.pages_layers, find(order));
    lock.lock();
  }
}

void KvDesk::run_keeping() {
  yield_to_others();
  MutexLock lock(mutex_);
  while (!stops_) {
    const Time now = clock_.now();
    send_next(now);
    if (std::exchange(has_purged_, false)) {
      lock.unlock();
      store_.remove_purged();
      lock.lock();
    } else if (!to_keep_.empty()) {
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

void KvDesk::note_size(const kv::Part& part, size_t size) {
  const MutexLock lock(mutex_);
  blend(layer_bytes_[level_of(part)], static_cast<double>(size) / part.num_layers());
}

/// Neighbours get what keeps every bit: who takes a place goes on as if nothing had been.
void KvDesk::code(const KeptPages& kept) {
  std::vector<chain::NamedBlob> copies;
  const ChunkCoder::Place place = coder_.place_of(kept.begin, coder_.num_levels() > 1);
  for (size_t level = 0; level < coder_.num_levels(); ++level) {
    for (const kv::Part& part : coder_.parts_of(kept.layers, level)) {
      if (level > 0 && part.level == kv::Level::kExact) continue;  // It is there.
      const kv::BlobName name = kv::name_of(kept.group, kept.chunk, part);
      Bytes blob;
      try {
        blob = kv::seal(coder_.encode(part, place, kept.pages, kept.first_layer), name, kept.chunk);
      } catch (const InputError&) {
        continue;  // Its positions are not to be rounded.
      }
      note_size(part, blob.size());
      if (level == 0) copies.push_back({.name = name, .blob = blob});
      put_away(name, std::make_shared<const Bytes>(std::move(blob)));
    }
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
  if (is_purged(put.message.blobs.front().name.group)) return;
  put.message.number = ++last_number_;
  puts_.push_back(std::move(put));
  // Of those that wait the oldest are the likeliest to be wanted no more; one is under way.
  if (puts_.size() > kMostPuts) puts_.erase(puts_.begin() + (sent_ ? 1 : 0));
}

}  // namespace atl::serve
