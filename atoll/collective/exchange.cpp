#include "atoll/collective/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/swarm/rules.h"

namespace atl::collective {

using swarm::Part;
using swarm::PartKind;

namespace {

/// Summed at once, so that sums do not wait for each other.
constexpr size_t kLanes = 32;

/// `count` is a multiple of kLanes.
ATOLL_CLONES double square_lanes(const float* values, size_t count) {
  std::array<double, kLanes> sums{};
  for (size_t begin = 0; begin < count; begin += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[begin + lane];
      sums[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

void add_scaled(std::span<float> mean, std::span<const float> values, float coefficient) {
  ATOLL_CHECK(mean.size() == values.size());
  float* const to = mean.data();
  const float* const from = values.data();
  for (size_t i = 0; i < mean.size(); ++i) to[i] += coefficient * from[i];
}

void set_scaled(std::span<float> mean, std::span<const float> values, float coefficient) {
  ATOLL_CHECK(mean.size() == values.size());
  float* const to = mean.data();
  const float* const from = values.data();
  for (size_t i = 0; i < mean.size(); ++i) to[i] = 0.0F + coefficient * from[i];
}

double sum_of_squares(std::span<const float> values) {
  const size_t whole = values.size() / kLanes * kLanes;
  double sum = square_lanes(values.data(), whole);
  for (const float value : values.subspan(whole)) sum += static_cast<double>(value) * value;
  return sum;
}

std::vector<float> coefficients(std::span<const int64_t> weights) {
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<float> out(weights.size(), 0.0F);
  if (sum == 0) return out;
  for (size_t i = 0; i < weights.size(); ++i) {
    out[i] = static_cast<float>(static_cast<double>(weights[i]) / static_cast<double>(sum));
  }
  return out;
}

size_t segment_size(size_t count, Topology topology) {
  // Whole chunks of every codec, and where there are enough values 32 segments to share out.
  constexpr size_t kLeast = size_t{1} << 12;
  constexpr size_t kWanted = 32;
  if (topology == Topology::kGather) return kSegmentValues;
  const size_t even = count / kWanted / kLeast * kLeast;
  return std::clamp(even, kLeast, kSegmentValues);
}

size_t chunk_size(double bytes_per_second) {
  return static_cast<size_t>(std::clamp(bytes_per_second / 4, static_cast<double>(kChunkBytes),
                                        static_cast<double>(kMaxChunkBytes)));
}

std::vector<int64_t> equal_shares(size_t count, Topology topology, int64_t num_members) {
  const auto size = static_cast<int64_t>(segment_size(count, topology));
  return swarm::equal_shares(swarm::num_segments(static_cast<int64_t>(count), size), num_members);
}

Exchange::Exchange(Plan plan, const Contribution& contribution, std::shared_ptr<RoundMemory> memory)
    : plan_(std::move(plan)),
      contribution_(contribution),
      memory_(memory != nullptr ? std::move(memory) : std::make_shared<RoundMemory>(PagePool(0))) {
  const size_t count = contribution_.num_values();
  const bool has_residual = !contribution_.mean_residual.empty();
  ATOLL_CHECK(contribution_.codec != nullptr && plan_.segment_values > 0);
  ATOLL_CHECK(contribution_.values.empty() || !contribution_.device_values.encode);
  ATOLL_CHECK(contribution_.mean_residual.size() == contribution_.new_mean_residual.size());
  ATOLL_CHECK(!has_residual || (contribution_.mean_residual.size() == count && !gathers()));
  const size_t num_own = contribution_.needs_own ? count : 0;
  values_memory_ = memory_->pages.take((count + num_own) * sizeof(float));
  mean_ = {reinterpret_cast<float*>(values_memory_->data()), count};
  own_ = {mean_.data() + count, num_own};
  decoded_.resize(std::min(count, plan_.segment_values));
  cut_into_segments();
  contributions_ =
      BlobArena(segments_.size() * plan_.members.size(),
                contribution_.codec->max_encoded_bytes(plan_.segment_values), memory_->pages);
  begin_attempt();
}

Exchange::~Exchange() = default;

void Exchange::reopen(Plan plan) {
  ATOLL_CHECK(plan.header.run == plan_.header.run && plan.header.round == plan_.header.round &&
                  plan.segment_values == plan_.segment_values,
              "another attempt of the same round");
  for (const auto& [number, via] : plan_.via) forget(number);
  plan_ = std::move(plan);
  for (const auto& [number, via] : plan_.via) forget(number);
  begin_attempt();
}

void Exchange::cut_into_segments() {
  for (size_t begin = 0; begin < contribution_.num_values(); begin += plan_.segment_values) {
    segments_.push_back(
        {.begin = begin,
         .size = std::min(plan_.segment_values, contribution_.num_values() - begin)});
  }
}

void Exchange::begin_attempt() {
  const size_t num_members = plan_.members.size();
  ATOLL_CHECK(plan_.weights.size() == num_members && plan_.shares.size() == num_members &&
              plan_.numbers.size() == num_members);
  const size_t count = contribution_.num_values();
  coefficients_ = coefficients(plan_.weights);
  failed_ = false;
  culprit_ = -1;
  is_culprit_a_contributor_ = false;
  to_encode_.clear();
  units_.clear();
  std::erase_if(outgoing_, [&](const Outgoing& outgoing) {
    return outgoing.part.kind == PartKind::kMean || !rank_of(outgoing.to);
  });
  num_missing_ = 0;
  if (abstains(plan_.rank)) std::ranges::fill(own_, 0.0F);
  assign_owners();
  if (std::ranges::all_of(plan_.weights, [](int64_t weight) { return weight == 0; })) {
    std::fill_n(mean_.data(), count, 0.0F);
    std::ranges::copy(contribution_.mean_residual, contribution_.new_mean_residual.begin());
    return;
  }
  num_missing_ = segments_.size();
  if (!abstains(plan_.rank)) plan_sends();
  for (size_t index = 0; index < segments_.size(); ++index) {
    if (is_summed_here(segments_[index])) schedule_sum(index);
  }
}

void Exchange::assign_owners() {
  size_t index = 0;
  for (size_t rank = 0; rank < plan_.shares.size(); ++rank) {
    for (int64_t i = 0; i < plan_.shares[rank] && index < segments_.size(); ++i) {
      segments_[index++].owner = static_cast<int32_t>(rank);
    }
  }
  ATOLL_CHECK(gathers() || index == segments_.size(), "each segment has an owner");
  means_ = BlobArena(gathers() ? 0 : segments_.size(),
                     contribution_.codec->max_encoded_bytes(plan_.segment_values), memory_->pages);
  for (Segment& segment : segments_) {
    segment.waits_to_be_sent = false;
    segment.own = nullptr;
    if (!gathers()) segment.kept = {};
    segment.mean = {};
    segment.next = 0;
    segment.begun = false;
    segment.squares.clear();
  }
}

void Exchange::plan_sends() {
  if (gathers()) {
    for (size_t index = 0; index < segments_.size(); ++index) {
      if (!receivers(segments_[index]).empty()) to_encode_.push_back(index);
    }
  } else {
    // In turns to all owners, so that all can begin; the next member first, so that not all members
    // send to the same one at once.
    const size_t num_members = plan_.members.size();
    std::vector<std::deque<size_t>> by_owner(num_members);
    for (size_t index = 0; index < segments_.size(); ++index) {
      const Segment& segment = segments_[index];
      if (receivers(segment).empty()) continue;
      by_owner[static_cast<size_t>(segment.owner)].push_back(index);
    }
    for (bool any = true; any;) {
      any = false;
      for (size_t i = 1; i < num_members; ++i) {
        auto& queue = by_owner[(static_cast<size_t>(plan_.rank) + i) % num_members];
        if (queue.empty()) continue;
        to_encode_.push_back(queue.front());
        queue.pop_front();
        any = true;
      }
    }
  }
  for (const size_t index : to_encode_) segments_[index].waits_to_be_sent = true;
}

std::vector<int32_t> Exchange::receivers(const Segment& segment) const {
  std::vector<int32_t> ranks;
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  for (int32_t i = 1; i < num_members; ++i) {
    const int32_t rank = (plan_.rank + i) % num_members;
    const bool needs = gathers() || rank == segment.owner;
    if (needs && !segment.sent_to.contains(plan_.numbers[static_cast<size_t>(rank)])) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

bool Exchange::is_summed_here(const Segment& segment) const {
  return gathers() || segment.owner == plan_.rank;
}

std::optional<int32_t> Exchange::rank_of(int32_t number) const {
  const auto found = std::ranges::find(plan_.numbers, number);
  if (found == plan_.numbers.end()) return std::nullopt;
  return static_cast<int32_t>(found - plan_.numbers.begin());
}

std::span<float> Exchange::mean_of(const Segment& segment) {
  return {mean_.data() + segment.begin, segment.size};
}

const std::string& Exchange::name(int32_t rank) const {
  return plan_.members[static_cast<size_t>(rank)];
}

Result<void> Exchange::receive(const Part& part, std::span<const std::byte> data) {
  const bool is_mean = part.kind == PartKind::kMean;
  // Coordinators that follow each other may give one number to two attempts.
  const auto attempt = std::pair(part.header.term, part.header.attempt);
  const auto current = std::pair(plan_.header.term, plan_.header.attempt);
  if (part.header.run != plan_.header.run || part.header.round != plan_.header.round ||
      attempt > current) {
    return failure(fmt::format(
        "a part of run '{}', round {}, attempt {} came for round {}, attempt {}", part.header.run,
        part.header.round, part.header.attempt, plan_.header.round, plan_.header.attempt));
  }
  if (part.sender == plan_.numbers[static_cast<size_t>(plan_.rank)]) {
    return failure(fmt::format("a part came in the name of this member, {}", part.sender));
  }
  const auto rank = rank_of(part.sender);
  // Of an attempt that is over, or of a member that is out of this one.
  const bool is_past = attempt < current;
  if (is_past && (is_mean || !rank)) return {};
  if (!rank) return failure(fmt::format("a part came from unknown member {}", part.sender));
  if (part.segment < 0 || std::cmp_greater_equal(part.segment, segments_.size()) ||
      (is_mean ? gathers() || segments_[static_cast<size_t>(part.segment)].owner != *rank
               : abstains(*rank) && !is_past)) {  // It may have been left out since.
    return failure(
        fmt::format("island '{}' sent a part of segment {}, which is not its to send here",
                    name(*rank), part.segment));
  }
  const auto index = static_cast<size_t>(part.segment);
  Segment& segment = segments_[index];
  Incoming& incoming = is_mean ? segment.mean : segment.contributions[part.sender];
  if (!is_mean && incoming.received > 0 && attempt != incoming.attempt) {
    // It is sent again, for its sender cannot know what had come; or is what had not come before.
    if (attempt < incoming.attempt || incoming.done) return {};
    incoming.received = 0;
  }
  incoming.attempt = attempt;
  // What a relay lost on its other side leaves a gap, until the next attempt.
  if (part.offset > incoming.received && plan_.via.contains(part.sender)) return {};
  auto accepted = accept(incoming, part, data, *rank, segment);
  if (!accepted || !incoming.done) return accepted;
  if (is_mean) {
    units_.push_back({UnitKind::kTakeMean, index});
  } else if (is_summed_here(segment) && *rank == segment.next && !abstains(*rank)) {
    schedule_sum(index);
  }
  return {};
}

Result<void> Exchange::accept(Incoming& incoming, const Part& part, std::span<const std::byte> data,
                              int32_t rank, const Segment& segment) {
  const std::string& sender = name(rank);
  const size_t most = contribution_.codec->max_encoded_bytes(segment.size);
  if (part.total == 0 || part.total > most) {
    return failure(fmt::format("island '{}' sent a part of {} bytes, where {} values have 1 to {}",
                               sender, part.total, segment.size, most));
  }
  if (incoming.done || part.offset < incoming.received) {
    return failure(fmt::format("island '{}' sent bytes {} to {} of segment {} twice", sender,
                               part.offset, part.offset + data.size(), part.segment));
  }
  const std::span<std::byte> place = incoming.place.bytes;
  const uint64_t total = place.empty() ? part.total : place.size();
  if (part.total != total || part.offset > incoming.received || data.empty() ||
      data.size() > total - incoming.received) {
    return failure(fmt::format(
        "island '{}' sent {} bytes at {} of {} of segment {}, where byte {} of {} is next", sender,
        data.size(), part.offset, part.total, part.segment, incoming.received, total));
  }
  if (place.empty()) {
    BlobArena& arena = part.kind == PartKind::kMean ? means_ : contributions_;
    incoming.place = arena.take(total);
  }
  std::ranges::copy(data, incoming.place.bytes.subspan(incoming.received).begin());
  incoming.received += data.size();
  incoming.done = incoming.received == total;
  return {};
}

void Exchange::schedule_sum(size_t index) {
  Segment& segment = segments_[index];
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  while (segment.next < num_members && abstains(segment.next)) ++segment.next;
  if (segment.next == num_members) {
    if (gathers()) {
      num_missing_ -= 1;
    } else {
      units_.push_back({UnitKind::kMakeMean, index});
    }
    return;
  }
  bool is_here = !segment.waits_to_be_sent;  // Else it is encoded then, once for both.
  if (segment.next != plan_.rank) {
    const auto found = segment.contributions.find(plan_.numbers[static_cast<size_t>(segment.next)]);
    is_here = found != segment.contributions.end() && found->second.done;
  }
  if (is_here) units_.push_back({UnitKind::kAdd, index});
}

Result<bool> Exchange::work(bool may_encode) {
  if (failed_) return false;
  Result<void> done;
  // In turns: what is summed need not be kept, and is still in the cache.
  const bool is_turn = units_.empty() || !std::exchange(has_encoded_, false);
  if (may_encode && !to_encode_.empty() && is_turn) {
    has_encoded_ = true;
    done = do_next_send();
  } else if (!units_.empty()) {
    const Unit unit = units_.front();
    units_.pop_front();
    done = do_unit(unit);
  } else {
    return false;
  }
  if (done) return true;
  failed_ = true;
  return tl::unexpected(done.error());
}

Result<void> Exchange::do_unit(const Unit& unit) {
  if (unit.kind == UnitKind::kAdd) return add_next(unit.segment);
  Segment& segment = segments_[unit.segment];
  return unit.kind == UnitKind::kMakeMean ? make_mean(segment) : take_mean(segment);
}

Result<void> Exchange::do_next_send() {
  const size_t index = to_encode_.front();
  to_encode_.pop_front();
  Segment& segment = segments_[index];
  auto encoded = encode_own(segment);
  if (!encoded) return tl::unexpected(encoded.error());
  auto blob = std::move(*encoded);
  const auto ranks = receivers(segment);
  send(segment, PartKind::kContribution, blob, ranks);
  for (const int32_t rank : ranks) segment.sent_to.insert(plan_.numbers[static_cast<size_t>(rank)]);
  segment.waits_to_be_sent = false;
  if (is_summed_here(segment)) {
    segment.own = std::move(blob);
    if (segment.next == plan_.rank) schedule_sum(index);
  } else if (!own_.empty()) {
    return decode(*blob, plan_.rank, {own_.data() + segment.begin, segment.size});
  }
  return {};
}

Result<void> Exchange::add_next(size_t index) {
  Segment& segment = segments_[index];
  const int32_t rank = segment.next;
  const std::span<float> mean = mean_of(segment);
  std::span<float> values = std::span(decoded_).first(segment.size);
  Result<void> decoded;
  if (rank != plan_.rank) {
    const auto number = plan_.numbers[static_cast<size_t>(rank)];
    decoded = decode(segment.contributions.at(number).place.bytes, rank, values);
  } else {
    if (!own_.empty()) values = {own_.data() + segment.begin, segment.size};
    auto encoded = std::exchange(segment.own, nullptr);
    if (encoded == nullptr && segment.kept.bytes.empty()) {
      auto made = encode_own(segment);
      if (!made) return tl::unexpected(made.error());
      encoded = std::move(*made);
    }
    if (gathers() && segment.kept.bytes.empty()) segment.kept = contributions_.keep(*encoded);
    decoded = decode(encoded == nullptr ? segment.kept.bytes : *encoded, rank, values);
  }
  if (!decoded) {
    is_culprit_a_contributor_ = rank != plan_.rank;
    return decoded;
  }
  if (segment.owner == plan_.rank) {
    segment.squares.resize(plan_.members.size());
    segment.squares[static_cast<size_t>(rank)] = sum_of_squares(values);
  }
  const float coefficient = coefficients_[static_cast<size_t>(rank)];
  if (std::exchange(segment.begun, true)) {
    add_scaled(mean, values, coefficient);
  } else {
    set_scaled(mean, values, coefficient);
  }
  segment.next += 1;
  schedule_sum(index);
  return {};
}

Result<void> Exchange::make_mean(Segment& segment) {
  const std::span<float> mean = mean_of(segment);
  const bool has_residual = !contribution_.mean_residual.empty();
  for (size_t i = 0; has_residual && i < segment.size; ++i) {
    mean[i] += contribution_.mean_residual[segment.begin + i];
  }
  auto encoded = memory_->blobs.take();
  try {
    contribution_.codec->encode(mean, *encoded, static_cast<uint32_t>(plan_.header.round));
  } catch (const InputError& error) {
    return failure(
        fmt::format("the mean of round {} cannot be sent: {}", plan_.header.round, error.what()));
  }
  // What the others will decode, not what was summed: all hold the same bits.
  const std::span<float> decoded = std::span(decoded_).first(segment.size);
  if (auto result = decode(*encoded, plan_.rank, decoded); !result) return result;
  if (has_residual) {
    float* const lost = contribution_.new_mean_residual.data() + segment.begin;
    for (size_t i = 0; i < segment.size; ++i) lost[i] = mean[i] - decoded[i];
  }
  std::ranges::copy(decoded, mean.begin());
  std::vector<int32_t> others;
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  for (int32_t i = 1; i < num_members; ++i) others.push_back((plan_.rank + i) % num_members);
  segment.kept = means_.keep(*encoded);
  send(segment, PartKind::kMean, std::move(encoded), others);
  num_missing_ -= 1;
  return {};
}

Result<void> Exchange::take_mean(Segment& segment) {
  if (auto result = decode(segment.mean.place.bytes, segment.owner, mean_of(segment)); !result) {
    return result;
  }
  segment.kept = segment.mean.place.shared();
  segment.mean = {.done = true};
  keep_residual(segment);
  num_missing_ -= 1;
  return {};
}

/// Who sums a segment writes what the codec loses there; all else stays.
void Exchange::keep_residual(const Segment& segment) {
  if (contribution_.mean_residual.empty()) return;
  std::ranges::copy(
      contribution_.mean_residual.subspan(segment.begin, segment.size),
      contribution_.new_mean_residual.begin() + static_cast<ptrdiff_t>(segment.begin));
}

void Exchange::settle_residual() {
  if (complete()) return;
  for (const Segment& segment : segments_) {
    const bool is_made_here = is_summed_here(segment) && !segment.kept.bytes.empty();
    if (!is_made_here) keep_residual(segment);
  }
}

Result<std::shared_ptr<const Bytes>> Exchange::encode_own(const Segment& segment) {
  auto encoded = memory_->blobs.take();
  try {
    contribution_.encode(segment.begin, segment.size, static_cast<uint32_t>(plan_.header.round),
                         *encoded);
  } catch (const InputError& error) {
    return failure(
        fmt::format("the values of island '{}' for round {}, from value {}, cannot be sent: {}",
                    name(plan_.rank), plan_.header.round, segment.begin, error.what()));
  }
  return encoded;
}

Result<void> Exchange::decode(std::span<const std::byte> bytes, int32_t sender,
                              std::span<float> values) {
  try {
    contribution_.codec->decode(bytes, values, static_cast<uint32_t>(plan_.header.round));
  } catch (const InputError& error) {
    culprit_ = sender == plan_.rank ? -1 : plan_.numbers[static_cast<size_t>(sender)];
    return failure(fmt::format("island '{}' sent values that cannot be used in round {}: {}",
                               name(sender), plan_.header.round, error.what()));
  }
  return {};
}

void Exchange::send(const Segment& segment, PartKind kind, std::shared_ptr<const Bytes> blob,
                    const std::vector<int32_t>& ranks) {
  for (const int32_t rank : ranks) {
    outgoing_.push_back({.to = plan_.numbers[static_cast<size_t>(rank)],
                         .part = {.header = plan_.header,
                                  .kind = kind,
                                  .sender = plan_.numbers[static_cast<size_t>(plan_.rank)],
                                  .receiver = plan_.numbers[static_cast<size_t>(rank)],
                                  .segment = static_cast<int32_t>(&segment - segments_.data()),
                                  .total = blob->size()},
                         .blob = blob});
  }
}

std::vector<double> Exchange::sums_of_squares() const {
  std::vector<double> sums(plan_.members.size());
  for (const Segment& segment : segments_) {
    for (size_t rank = 0; rank < segment.squares.size(); ++rank) {
      sums[rank] += segment.squares[rank];
    }
  }
  return sums;
}

std::vector<Debtor> Exchange::debtors() const {
  std::vector<bool> owes(plan_.members.size(), false);  // A contribution.
  std::vector<bool> owes_mean(plan_.members.size(), false);
  if (failed_) return {};  // Another attempt is to come.
  for (const Segment& segment : segments_) {
    if (num_missing_ == 0) break;
    if (!is_summed_here(segment)) {
      if (!segment.mean.done) owes_mean[static_cast<size_t>(segment.owner)] = true;
      continue;
    }
    for (int32_t rank = 0; std::cmp_less(rank, owes.size()); ++rank) {
      const auto i = static_cast<size_t>(rank);
      if (rank == plan_.rank || abstains(rank)) continue;
      const auto found = segment.contributions.find(plan_.numbers[i]);
      if (found == segment.contributions.end() || !found->second.done) owes[i] = true;
    }
  }
  std::vector<Debtor> debtors;
  for (size_t rank = 0; rank < owes.size(); ++rank) {
    if (owes[rank] || owes_mean[rank]) debtors.push_back({plan_.numbers[rank], !owes[rank]});
  }
  return debtors;
}

void Exchange::forget(int32_t number) {
  for (Segment& segment : segments_) segment.sent_to.erase(number);
}

RoundResult Exchange::take_result() {
  ATOLL_CHECK(complete(), "the mean is whole");
  RoundResult result{.topology = contribution_.topology};
  const bool any_weight =
      std::ranges::any_of(plan_.weights, [](int64_t weight) { return weight > 0; });
  if (!any_weight) return result;
  for (const Segment& segment : segments_) {
    auto& blobs = result.segments.emplace_back();
    if (!gathers()) {
      blobs[kMeanKey] = segment.kept;
      continue;
    }
    for (size_t rank = 0; rank < plan_.numbers.size(); ++rank) {
      if (plan_.weights[rank] == 0) continue;
      const int32_t number = plan_.numbers[rank];
      const bool is_own = std::cmp_equal(rank, plan_.rank);
      blobs[number] = is_own ? segment.kept : segment.contributions.at(number).place.shared();
    }
  }
  result.compact();
  return result;
}

std::vector<Outgoing> Exchange::take_outgoing() { return std::exchange(outgoing_, {}); }

}  // namespace atl::collective
