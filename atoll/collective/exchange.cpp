#include "atoll/collective/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"

namespace atl::collective {

using swarm::Part;
using swarm::PartKind;

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
  plan_ = std::move(plan);
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
  rule_ = {.codec = contribution_.codec,
           .sequence = static_cast<uint32_t>(plan_.header.round),
           .coefficients = coefficients(plan_.weights)};
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
    segment.incoming_mean = {};
    segment.mean = SegmentMean(rule_, segment.of(mean_));
  }
  make_room_for_samples();
}

void Exchange::plan_sends() {
  // With kScatter in turns to all owners, so that all can begin.
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  std::vector<size_t> num_planned(plan_.members.size());   // By owner.
  std::vector<std::tuple<size_t, int32_t, size_t>> order;  // Turn, how far the owner is, segment.
  for (size_t index = 0; index < segments_.size(); ++index) {
    const Segment& segment = segments_[index];
    if (receivers(segment).empty()) continue;
    const int32_t distance = (segment.owner - plan_.rank + num_members) % num_members;
    size_t& turn = num_planned[static_cast<size_t>(segment.owner)];
    order.emplace_back(gathers() ? 0 : turn++, gathers() ? 0 : distance, index);
  }
  std::ranges::sort(order);
  for (const auto& [turn, distance, index] : order) {
    to_encode_.push_back(index);
    segments_[index].waits_to_be_sent = true;
  }
}

std::vector<int32_t> Exchange::others() const {
  std::vector<int32_t> ranks;
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  for (int32_t i = 1; i < num_members; ++i) ranks.push_back((plan_.rank + i) % num_members);
  return ranks;
}

std::vector<int32_t> Exchange::receivers(const Segment& segment) const {
  std::vector<int32_t> ranks = others();
  std::erase_if(ranks, [&](int32_t rank) {
    const bool needs = gathers() || rank == segment.owner;
    return !needs || segment.sent_to.contains(plan_.number(rank));
  });
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
  if (part.sender == plan_.number(plan_.rank)) {
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
  IncomingBlob& incoming = is_mean ? segment.incoming_mean : segment.contributions[part.sender];
  // It is sent again, for its sender cannot know what had come; or is what had not come before.
  if (!incoming.begin(attempt)) return {};
  const IncomingBlob::Expected expected{
      .sender = name(*rank),
      .num_values = segment.size,
      .most = contribution_.codec->max_encoded_bytes(segment.size)};
  auto taken = incoming.take(part, data, expected, is_mean ? means_ : contributions_);
  if (!taken || !incoming.done()) return taken;
  if (is_mean) {
    units_.push_back({UnitKind::kTakeMean, index});
  } else if (is_summed_here(segment) && *rank == segment.mean.wanted()) {
    schedule_sum(index);
  }
  return {};
}

void Exchange::schedule_sum(size_t index) {
  const Segment& segment = segments_[index];
  const auto wanted = segment.mean.wanted();
  if (!wanted) {
    if (gathers()) {
      num_missing_ -= 1;
    } else {
      units_.push_back({UnitKind::kMakeMean, index});
    }
    return;
  }
  bool is_here = !segment.waits_to_be_sent;  // Else it is encoded then, once for both.
  if (*wanted != plan_.rank) {
    const auto found = segment.contributions.find(plan_.number(*wanted));
    is_here = found != segment.contributions.end() && found->second.done();
  }
  if (is_here) units_.push_back({UnitKind::kAdd, index});
}

template <typename Decode>
Result<void> Exchange::guard(int32_t sender, Decode decode) {
  try {
    decode();
  } catch (const InputError& error) {
    culprit_ = sender == plan_.rank ? -1 : plan_.number(sender);
    return failure(fmt::format("island '{}' sent values that cannot be used in round {}: {}",
                               name(sender), plan_.header.round, error.what()));
  }
  return {};
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
    Segment& segment = segments_[unit.segment];
    done = unit.kind == UnitKind::kAdd        ? add_next(unit.segment)
           : unit.kind == UnitKind::kMakeMean ? make_mean(segment)
                                              : take_mean(segment);
  } else {
    return false;
  }
  if (done) return true;
  failed_ = true;
  return tl::unexpected(done.error());
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
  for (const int32_t rank : ranks) segment.sent_to.insert(plan_.number(rank));
  segment.waits_to_be_sent = false;
  if (is_summed_here(segment)) {
    segment.own = std::move(blob);
    if (segment.mean.wanted() == plan_.rank) schedule_sum(index);
  } else if (!own_.empty()) {
    return guard(plan_.rank, [&] { rule_.codec->decode(*blob, segment.of(own_), rule_.sequence); });
  }
  return {};
}

Result<void> Exchange::add_next(size_t index) {
  Segment& segment = segments_[index];
  const int32_t rank = segment.mean.wanted().value();
  std::span<float> values = std::span(decoded_).first(segment.size);
  std::shared_ptr<const Bytes> own;
  std::span<const std::byte> encoded;
  if (rank != plan_.rank) {
    encoded = segment.contributions.at(plan_.number(rank)).bytes();
  } else {
    if (!own_.empty()) values = segment.of(own_);
    own = std::exchange(segment.own, nullptr);
    if (own == nullptr && segment.kept.bytes.empty()) {
      auto made = encode_own(segment);
      if (!made) return tl::unexpected(made.error());
      own = std::move(*made);
    }
    if (gathers() && segment.kept.bytes.empty()) segment.kept = contributions_.keep(*own);
    encoded = own == nullptr ? segment.kept.bytes : std::span(*own);
  }
  if (auto added = guard(rank, [&] { segment.mean.add(encoded, values); }); !added) {
    is_culprit_a_contributor_ = rank != plan_.rank;
    return added;
  }
  if (segment.owner == plan_.rank) {
    segment.measures.add(static_cast<size_t>(rank), values, segment.begin, sampling());
    if (!segment.mean.wanted()) segment.measures.end();
  }
  schedule_sum(index);
  return {};
}

Result<void> Exchange::make_mean(Segment& segment) {
  auto encoded = memory_->blobs.take();
  try {
    segment.mean.encode(segment.of(contribution_.mean_residual), *encoded);
  } catch (const InputError& error) {
    return failure(
        fmt::format("the mean of round {} cannot be sent: {}", plan_.header.round, error.what()));
  }
  // What the others will decode, not what was summed: all hold the same bits.
  auto held = guard(plan_.rank, [&] {
    segment.mean.hold(*encoded, segment.of(contribution_.new_mean_residual));
  });
  if (!held) return held;
  segment.kept = means_.keep(*encoded);
  send(segment, PartKind::kMean, std::move(encoded), others());
  num_missing_ -= 1;
  return {};
}

Result<void> Exchange::take_mean(Segment& segment) {
  const auto encoded = segment.incoming_mean.shared();
  if (auto held = guard(segment.owner, [&] { segment.mean.hold(encoded.bytes); }); !held) {
    return held;
  }
  segment.kept = encoded;
  segment.incoming_mean.let_go();
  keep_residual(segment);
  num_missing_ -= 1;
  return {};
}

/// Who sums a segment writes what the codec loses there; all else stays.
void Exchange::keep_residual(const Segment& segment) {
  std::ranges::copy(segment.of(contribution_.mean_residual),
                    segment.of(contribution_.new_mean_residual).begin());
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

void Exchange::send(const Segment& segment, PartKind kind, std::shared_ptr<const Bytes> blob,
                    const std::vector<int32_t>& ranks) {
  for (const int32_t rank : ranks) {
    outgoing_.push_back({.to = plan_.number(rank),
                         .part = {.header = plan_.header,
                                  .kind = kind,
                                  .sender = plan_.number(plan_.rank),
                                  .receiver = plan_.number(rank),
                                  .segment = static_cast<int32_t>(&segment - segments_.data()),
                                  .total = blob->size()},
                         .blob = blob});
  }
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
      blobs[number] = is_own ? segment.kept : segment.contributions.at(number).shared();
    }
  }
  result.compact();
  return result;
}

std::vector<Outgoing> Exchange::take_outgoing() { return std::exchange(outgoing_, {}); }

}  // namespace atl::collective
