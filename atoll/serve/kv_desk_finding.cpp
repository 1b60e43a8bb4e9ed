// A desk's search for chunks that somebody waits for: of its own, then of other servers', each at
// the level that is in time (kv/level_choice.h), and opened while the next ones travel.
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/serve/kv_desk.h"
#include "atoll/weights/shared_work.h"

namespace atl::serve {
namespace {

constexpr int64_t kPagesOfChunk = kv::kChunkTokens / model::KvPool::kPagePositions;
// What is asked for before it is opened; as long as no speed is known, one chunk.
constexpr double kAheadBytes = 2 << 20;
constexpr size_t kLeastAhead = 2;
constexpr size_t kMostAhead = 32;
// Of what servers have had: so much of a server in all, and at once.
constexpr double kMostAsHad = 256 << 20;
constexpr double kGentleBytes = 256 << 10;
constexpr double kMostOpened = int64_t{1} << 30;

}  // namespace

/// Of a chunk at each level: layers whose group is not whole are exact at all of them.
std::vector<double> KvDesk::bytes_by_level(chain::Span layers) const {
  std::vector<double> bytes(coder_.num_levels());
  for (size_t level = 0; level < bytes.size(); ++level) {
    for (const kv::Part& part : coder_.parts_of(layers, level)) {
      bytes[level] += layer_bytes_[level_of(part)] * part.num_layers();
    }
  }
  return bytes;
}

kv::Pace KvDesk::pace_of(const Order& order) const {
  const chain::Restore& said = order.restore;
  const Time now = clock_.now();
  kv::Pace pace;
  if (!order.helper.empty()) {
    pace.bytes_per_second = fetch_rates_.of(order.helper, now);
  } else if (!said.holders.empty()) {
    pace.bytes_per_second = fetch_rates_.of(said.holders.front(), now);
  }
  pace.seconds_left = said.round_after_ms / 1e3 - seconds(now - order.begun);
  if (said.read_ms >= 0) {
    pace.seconds_to_read = said.read_ms / 1e3 / static_cast<double>(said.chunks.size());
  }
  return pace;
}

size_t KvDesk::Gathering::level() const {
  size_t level = 0;
  for (const kv::Part& part : parts) level = std::max(level, level_of(part));
  return level;
}

KvDesk::Gathering KvDesk::gathering_at(const Order& order, size_t chunk, size_t level) {
  return gathering_of(order, chunk, coder_.parts_of(order.restore.layers, level));
}

/// What is here to the bit takes the place of what is rounded.
KvDesk::Gathering KvDesk::gathering_of(const Order& order, size_t chunk,
                                       std::span<const kv::Part> parts) {
  const chain::Restore& said = order.restore;
  Gathering gathering{.chunk = chunk, .holders = said.holders};
  const auto helper = std::ranges::find(gathering.holders, order.helper);
  if (helper != gathering.holders.end()) {  // Who has had some has more.
    std::rotate(gathering.holders.begin(), helper, helper + 1);
  }
  const auto add = [&](const kv::Part& part, kv::BlobName name, kv::SharedBlob blob) {
    gathering.parts.push_back(part);
    gathering.names.push_back(name);
    gathering.are_own.push_back(blob != nullptr);
    gathering.blobs.push_back(std::move(blob));
  };
  for (const kv::Part& part : parts) {
    std::vector<std::pair<kv::BlobName, kv::SharedBlob>> exact;
    for (int32_t layer = part.first_layer; layer < part.end_layer; ++layer) {
      const auto name = kv::name_of(said.group, said.chunks[chunk], {layer, layer + 1});
      exact.emplace_back(name, store_.get(name));
    }
    const bool is_here =
        std::ranges::all_of(exact, [](const auto& each) { return each.second != nullptr; });
    if (part.level == kv::Level::kExact || is_here) {
      int32_t layer = part.first_layer;
      for (auto& [name, blob] : exact) {
        add({layer, layer + 1}, name, std::move(blob));
        ++layer;
      }
    } else {
      const auto name = kv::name_of(said.group, said.chunks[chunk], part);
      add(part, name, store_.get(name));
    }
  }
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < gathering.parts.size(); ++i) {
    const kv::Part& part = gathering.parts[i];
    if (gathering.blobs[i] != nullptr) continue;
    gathering.bytes += layer_bytes_[level_of(part)] * part.num_layers();
  }
  return gathering;
}

/// Nothing: it is sooner read anew. `num_asked`: bytes that are under way.
std::optional<KvDesk::Gathering> KvDesk::begin_gathering(const Order& order, size_t chunk,
                                                         double num_asked) {
  const chain::Restore& said = order.restore;
  if (!order.levels.empty()) {
    const auto num_layers = static_cast<size_t>(said.layers.size());
    Gathering gathering = gathering_of(
        order, chunk,
        coder_.parts_at(said.layers, order.levels.subspan(chunk * num_layers, num_layers)));
    ask(order, gathering);
    return gathering;
  }
  const size_t num_left = said.chunks.size() - chunk;
  size_t level = 0;
  size_t smallest = 0;
  kv::Pace pace;
  {
    const MutexLock lock(mutex_);
    pace = pace_of(order);
    // What comes next attends most to what is next to it: the last one is exact.
    if (said.round_after_ms >= 0 && order.may_round && num_left > 1) {
      const std::vector<double> bytes = bytes_by_level(said.layers);
      level = kv::level_in_time(bytes, num_left, num_asked, pace);
      smallest = bytes.size() - 1;
    }
  }
  Gathering gathering = gathering_at(order, chunk, level);
  // What is exact in time, and slower than reading, is read, and nothing is rounded for it.
  if (!kv::is_worth_it(gathering.bytes, pace) && level > 0 && level < smallest) {
    gathering = gathering_at(order, chunk, smallest);
  }
  if (!kv::is_worth_it(gathering.bytes, pace)) return std::nullopt;
  ask(order, gathering);
  return gathering;
}

/// Who has had some of it is asked for what is missing, else the next holder; nobody, where nothing
/// is, or nobody is left.
void KvDesk::ask(const Order& order, Gathering& gathering) {
  gathering.question = 0;
  chain::Fetch question;
  const bool is_gentle = !order.levels.empty();
  double bytes = 0;
  for (size_t i = 0; i < gathering.names.size(); ++i) {
    if (gathering.blobs[i] != nullptr) continue;
    if (is_gentle && bytes >= kGentleBytes) break;
    question.names.push_back(gathering.names[i]);
    bytes += gathering.bytes / static_cast<double>(gathering.names.size());
  }
  const std::vector<std::string>& holders = gathering.holders;
  if (!std::exchange(gathering.has_helped, false)) ++gathering.next_holder;
  if (question.names.empty() || gathering.next_holder > holders.size()) return;
  {
    const MutexLock lock(mutex_);
    gathering.question = question.number = ++last_number_;
    questions_[question.number] = {holders[gathering.next_holder - 1], clock_.now(), {}};
  }
  hooks_.send(holders[gathering.next_holder - 1], question);
}

/// Waits until all of the chunk is here. False: it is not to be had.
bool KvDesk::gather(Order& order, Gathering& gathering) {
  while (gathering.question != 0) {
    std::optional<chain::Fetched> answer;
    {
      MutexLock lock(mutex_);
      Question& question = questions_.at(gathering.question);
      const Time since = std::max(question.asked, last_answer_);
      changed_.wait_for(lock,
                        std::min(since + patience(kMostInMessage), order.until) - clock_.now(),
                        [&]() ATOLL_REQUIRES(mutex_) { return stops_ || question.answer; });
      answer = std::move(question.answer);
      questions_.erase(gathering.question);
      if (stops_ || clock_.now() >= order.until) return false;
    }
    size_t next = 0;
    for (size_t i = 0; answer && i < gathering.names.size(); ++i) {
      if (gathering.blobs[i] != nullptr) continue;
      if (next >= answer->blobs.size()) break;
      Bytes& blob = answer->blobs[next++];
      if (blob.empty()) continue;
      gathering.blobs[i] = std::make_shared<const Bytes>(std::move(blob));
      gathering.are_own[i] = false;
      gathering.has_helped = true;
      order.helper = gathering.holders[gathering.next_holder - 1];
    }
    ask(order, gathering);
  }
  return std::ranges::all_of(gathering.blobs, [](const auto& blob) { return blob != nullptr; });
}

/// Of what lay in this server's own store. Texts go on all the same: who looks after the machine is
/// told, and once.
void KvDesk::note_damage() {
  const auto& folder = options_.store.folder;
  if (folder.empty() || has_told_damage_.exchange(true)) return;
  hooks_.tell(
      fmt::format("some keys and values that are kept in '{}' are damaged, and are made anew: by "
                  "the disk, or another server that sent them",
                  folder.string()));
}

/// False: some of it is damaged. That is not kept any more, and what is good is.
bool KvDesk::open(const Order& order, Gathering& gathering, std::span<const at::Tensor> pages) {
  const kv::Chunk& chunk = order.restore.chunks[gathering.chunk];
  const ChunkCoder::Place place = coder_.place_of(
      static_cast<int64_t>(gathering.chunk) * kv::kChunkTokens, gathering.level() > 0);
  std::atomic<bool> is_good = true;
  weights::share_work(gathering.parts.size(), options_.num_threads, [&](size_t i) {
    try {
      const Bytes blob = kv::unseal(*gathering.blobs[i], gathering.names[i], chunk);
      coder_.decode(blob, gathering.parts[i], place, pages, order.pages_layers.begin);
      if (gathering.are_own[i]) return;
      put_away(gathering.names[i], gathering.blobs[i]);
      note_size(gathering.parts[i], gathering.blobs[i]->size());
    } catch (const InputError&) {
      is_good = false;
      if (gathering.are_own[i]) note_damage();
      store_.remove(gathering.names[i]);
      gathering.blobs[i] = nullptr;
    }
  });
  return is_good;
}

/// What a holder has damaged another one may have whole; and what is damaged here, this one.
bool KvDesk::have(Order& order, Gathering& gathering, std::span<const at::Tensor> pages) {
  while (gather(order, gathering)) {
    if (open(order, gathering, pages)) return true;
    bool is_own = true;
    for (size_t i = 0; i < gathering.blobs.size(); ++i) {
      is_own = is_own && (gathering.blobs[i] != nullptr || gathering.are_own[i]);
    }
    gathering.has_helped = is_own && gathering.next_holder > 0;
    ask(order, gathering);
  }
  return false;
}

FoundChunks KvDesk::find(const chain::Restore& restore, chain::Span pages_layers, size_t first) {
  return find({.restore = restore, .pages_layers = pages_layers, .begun = clock_.now()}, first);
}

std::vector<at::Tensor> KvDesk::find_as(const chain::Restore& order,
                                        std::span<const uint8_t> levels, Duration patience) {
  const auto num_layers = static_cast<size_t>(order.layers.size());
  double bytes = 0;
  {
    const MutexLock lock(mutex_);
    for (const uint8_t level : levels) {
      if (level >= layer_bytes_.size()) return {};
      bytes += layer_bytes_[level];
    }
  }
  const double opened = static_cast<double>(levels.size()) * sizeof(uint16_t) * 2 *
                        static_cast<double>(options_.shape.num_channels() * kv::kChunkTokens);
  const bool is_whole = !levels.empty() && levels.size() == order.chunks.size() * num_layers;
  if (!is_whole || bytes > kMostAsHad || opened > kMostOpened) return {};
  FoundChunks found = find({.restore = order,
                            .pages_layers = order.layers,
                            .begun = clock_.now(),
                            .levels = levels,
                            .until = clock_.now() + patience});
  if (found.pages.size() < order.chunks.size() * kPagesOfChunk) return {};
  return std::move(found.pages);
}

/// Chunks from number `next` to before `end` are asked for, as many as may be under way.
void KvDesk::ask_ahead(const Order& order, size_t& next, size_t& end,
                       std::deque<Gathering>& ahead) {
  double num_asked = 0;
  for (const Gathering& each : ahead) num_asked += each.bytes;
  const bool is_speed_known = [&] {
    const MutexLock lock(mutex_);
    return pace_of(order).bytes_per_second > 0;
  }();
  const size_t most = order.levels.empty() ? kMostAhead : 1;
  while (next < end && ahead.size() < most) {
    if (num_asked > 0 && !is_speed_known) return;
    if (ahead.size() >= kLeastAhead && num_asked >= kAheadBytes) return;
    auto gathering = begin_gathering(order, next, num_asked);
    if (!gathering) {  // It and what is behind it is read.
      end = next;
      return;
    }
    num_asked += gathering->bytes;
    ahead.push_back(*std::move(gathering));
    ++next;
  }
}

FoundChunks KvDesk::find(Order order, size_t first) {
  FoundChunks found;
  if (was_purged(order.restore.group)) return found;
  std::deque<Gathering> ahead;
  size_t next = first;
  size_t end = order.restore.chunks.size();
  const int64_t page = 2 * options_.shape.num_channels() * model::KvPool::kPagePositions;
  while (true) {
    ask_ahead(order, next, end, ahead);
    if (ahead.empty()) break;
    Gathering gathering = std::move(ahead.front());
    ahead.pop_front();
    std::vector<at::Tensor> pages;
    for (int64_t i = 0; i < kPagesOfChunk; ++i) {
      // Layers that were not asked for hold nothing of anybody's.
      pages.push_back(at::zeros({order.pages_layers.size(), 2, page / 2},
                                at::TensorOptions().dtype(at::kBFloat16)));
    }
    bool is_there = have(order, gathering, pages);
    if (!is_there && gathering.level() > 0 && order.levels.empty()) {  // Nobody has it rounded.
      order.may_round = false;
      auto exact = begin_gathering(order, gathering.chunk, 0);
      if (!exact) break;
      gathering = *std::move(exact);
      is_there = have(order, gathering, pages);
    }
    if (!is_there) break;
    for (const kv::Part& part : gathering.parts) {
      found.levels.insert(found.levels.end(), static_cast<size_t>(part.num_layers()),
                          static_cast<uint8_t>(level_of(part)));
    }
    std::ranges::move(pages, std::back_inserter(found.pages));
  }
  const MutexLock lock(mutex_);
  for (const Gathering& left : ahead) questions_.erase(left.question);
  return found;
}

}  // namespace atl::serve
