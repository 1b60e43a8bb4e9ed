#include "atoll/collective/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"

namespace atl::collective {

using swarm::Part;
using swarm::PartKind;

void add_scaled(std::span<float> mean, std::span<const float> values, float coefficient) {
  ATOLL_CHECK(mean.size() == values.size());
  float* const to = mean.data();
  const float* const from = values.data();
  for (size_t i = 0; i < mean.size(); ++i) to[i] += coefficient * from[i];
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

Exchange::Exchange(Plan plan, const Contribution& contribution)
    : plan_(std::move(plan)),
      contribution_(contribution),
      coefficients_(coefficients(plan_.weights)) {
  const size_t num_members = plan_.members.size();
  const size_t count = contribution_.num_values();
  const bool has_residual = !contribution_.mean_residual.empty();
  ATOLL_CHECK(contribution_.codec != nullptr && plan_.segment_values > 0);
  ATOLL_CHECK(contribution_.values.empty() || !contribution_.device_values.encode);
  ATOLL_CHECK(plan_.weights.size() == num_members && plan_.shares.size() == num_members);
  ATOLL_CHECK(contribution_.mean_residual.size() == contribution_.new_mean_residual.size());
  ATOLL_CHECK(!has_residual || (contribution_.mean_residual.size() == count &&
                                contribution_.topology == Topology::kScatter));
  mean_ = std::make_unique_for_overwrite<float[]>(count);
  if (contribution_.needs_own) own_ = std::make_unique_for_overwrite<float[]>(count);
  if (contribution_.needs_own && abstains(plan_.rank)) std::fill_n(own_.get(), count, 0.0F);
  cut_into_segments();
  if (std::ranges::all_of(plan_.weights, [](int64_t weight) { return weight == 0; })) {
    std::fill_n(mean_.get(), count, 0.0F);
    std::ranges::copy(contribution_.mean_residual, contribution_.new_mean_residual.begin());
    return;
  }
  num_missing_ = segments_.size();
  decoded_.resize(std::min(count, plan_.segment_values));
  if (!abstains(plan_.rank)) plan_sends();
  for (size_t index = 0; index < segments_.size(); ++index) {
    if (!is_summed_here(segments_[index])) continue;
    segments_[index].contributions.resize(num_members);
    schedule_sum(index);
  }
}

Exchange::~Exchange() = default;

void Exchange::cut_into_segments() {
  std::vector<int64_t> shares = plan_.shares;
  if (contribution_.topology == Topology::kGather) {
    shares = {static_cast<int64_t>(contribution_.num_values())};
  }
  size_t begin = 0;
  for (size_t share = 0; share < shares.size(); ++share) {
    first_segments_.push_back(segments_.size());
    const size_t end = begin + static_cast<size_t>(shares[share]);
    for (int32_t number = 0; begin < end; ++number) {
      const size_t size = std::min(plan_.segment_values, end - begin);
      segments_.push_back(
          {.share = static_cast<int32_t>(share), .number = number, .begin = begin, .size = size});
      begin += size;
    }
  }
  first_segments_.push_back(segments_.size());
  ATOLL_CHECK(begin == contribution_.num_values());
}

void Exchange::plan_sends() {
  const size_t num_members = plan_.members.size();
  if (num_members == 1) return;
  if (contribution_.topology == Topology::kGather) {
    to_encode_.resize(segments_.size());
    std::iota(to_encode_.begin(), to_encode_.end(), size_t{0});
    return;
  }
  // In turns to all owners, so that all can begin; the next member first, so that not all members
  // send to the same one at once.
  const auto rank = static_cast<size_t>(plan_.rank);
  bool any = true;
  for (size_t number = 0; any; ++number) {
    any = false;
    for (size_t i = 1; i < num_members; ++i) {
      const size_t owner = (rank + i) % num_members;
      const size_t index = first_segments_[owner] + number;
      if (index >= first_segments_[owner + 1]) continue;
      to_encode_.push_back(index);
      any = true;
    }
  }
}

bool Exchange::is_summed_here(const Segment& segment) const {
  return contribution_.topology == Topology::kGather || segment.share == plan_.rank;
}

bool Exchange::encodes_when_added() const {
  return contribution_.topology == Topology::kScatter || plan_.members.size() == 1;
}

std::span<float> Exchange::mean_of(const Segment& segment) {
  return {mean_.get() + segment.begin, segment.size};
}

std::span<const float> Exchange::own() const {
  if (own_ == nullptr) return {};
  return {own_.get(), contribution_.num_values()};
}

const std::string& Exchange::name(int32_t rank) const {
  return plan_.members[static_cast<size_t>(rank)];
}

Result<void> Exchange::receive(Part part) {
  auto found = segment_of(part);
  if (!found) return tl::unexpected(found.error());
  Segment& segment = **found;
  const int32_t sender = part.sender;
  const bool is_mean = part.kind == PartKind::kMean;
  Incoming& incoming = is_mean ? segment.mean : segment.contributions[static_cast<size_t>(sender)];
  auto accepted = accept(incoming, std::move(part), segment);
  if (!accepted || !incoming.done) return accepted;
  const auto index = static_cast<size_t>(&segment - segments_.data());
  if (is_mean) {
    units_.push_back({UnitKind::kTakeMean, index});
  } else if (sender == segment.next) {
    schedule_sum(index);
  }
  return {};
}

Result<Exchange::Segment*> Exchange::segment_of(const Part& part) {
  if (part.header != plan_.header) {
    return failure(
        fmt::format("a part of run '{}', term {}, round {}, attempt {} came for round {}, "
                    "attempt {}",
                    part.header.run, part.header.term, part.header.round, part.header.attempt,
                    plan_.header.round, plan_.header.attempt));
  }
  if (part.sender < 0 || std::cmp_greater_equal(part.sender, plan_.members.size()) ||
      part.sender == plan_.rank) {
    return failure(fmt::format("a part came from unknown member {}", part.sender));
  }
  const bool gathers = contribution_.topology == Topology::kGather;
  const bool is_mean = part.kind == PartKind::kMean;
  const int32_t share = gathers ? 0 : (is_mean ? part.sender : plan_.rank);
  const size_t first = first_segments_[static_cast<size_t>(share)];
  const size_t end = first_segments_[static_cast<size_t>(share) + 1];
  if (part.share != share || (is_mean && gathers) || num_missing_ == 0 ||
      (!is_mean && abstains(part.sender)) || part.segment < 0 ||
      std::cmp_greater_equal(part.segment, end - first)) {
    return failure(
        fmt::format("island '{}' sent a part of segment {} of share {}, which is not its to send "
                    "here",
                    name(part.sender), part.segment, part.share));
  }
  return &segments_[first + static_cast<size_t>(part.segment)];
}

Result<void> Exchange::accept(Incoming& incoming, Part part, const Segment& segment) const {
  const std::string& sender = name(part.sender);
  const size_t most = contribution_.codec->max_encoded_bytes(segment.size);
  if (part.total == 0 || part.total > most) {
    return failure(fmt::format("island '{}' sent a part of {} bytes, where {} values have 1 to {}",
                               sender, part.total, segment.size, most));
  }
  if (incoming.done || part.offset < incoming.bytes.size()) {
    return failure(fmt::format("island '{}' sent bytes {} to {} of segment {} of share {} twice",
                               sender, part.offset, part.offset + part.data.size(), part.segment,
                               part.share));
  }
  if (incoming.total == 0) incoming.total = part.total;
  if (part.total != incoming.total || part.offset > incoming.bytes.size() || part.data.empty() ||
      part.data.size() > incoming.total - incoming.bytes.size()) {
    return failure(fmt::format(
        "island '{}' sent {} bytes at {} of {} of segment {} of share {}, where byte {} of {} is "
        "next",
        sender, part.data.size(), part.offset, part.total, part.segment, part.share,
        incoming.bytes.size(), incoming.total));
  }
  if (incoming.bytes.empty() && part.data.size() == incoming.total) {
    incoming.bytes = std::move(part.data);
  } else {
    incoming.bytes.reserve(incoming.total);
    incoming.bytes.insert(incoming.bytes.end(), part.data.begin(), part.data.end());
  }
  incoming.done = incoming.bytes.size() == incoming.total;
  return {};
}

void Exchange::schedule_sum(size_t index) {
  Segment& segment = segments_[index];
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  while (segment.next < num_members && abstains(segment.next)) ++segment.next;
  if (segment.next == num_members) {
    if (contribution_.topology == Topology::kGather) {
      num_missing_ -= 1;
    } else {
      units_.push_back({UnitKind::kMakeMean, index});
    }
    return;
  }
  const bool is_own = segment.next == plan_.rank;
  const bool is_here = is_own ? encodes_when_added() || segment.own != nullptr
                              : segment.contributions[static_cast<size_t>(segment.next)].done;
  if (is_here) units_.push_back({UnitKind::kAdd, index});
}

Result<bool> Exchange::work(bool may_encode) {
  if (failed_) return false;
  Result<void> done;
  if (may_encode && num_encoded_ < to_encode_.size()) {
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
  const size_t index = to_encode_[num_encoded_++];
  Segment& segment = segments_[index];
  if (auto encoded = encode_own(segment); !encoded) return encoded;
  auto blob = std::make_shared<const Bytes>(encoded_.begin(), encoded_.end());
  send(segment, PartKind::kContribution, blob);
  if (contribution_.topology == Topology::kGather) {
    segment.own = std::move(blob);
    if (segment.next == plan_.rank) schedule_sum(index);
  } else if (own_ != nullptr) {
    return decode(encoded_, plan_.rank, {own_.get() + segment.begin, segment.size});
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
    Incoming& incoming = segment.contributions[static_cast<size_t>(rank)];
    decoded = decode(incoming.bytes, rank, values);
    incoming.bytes = {};
  } else {
    if (own_ != nullptr) values = {own_.get() + segment.begin, segment.size};
    if (segment.own == nullptr) {
      if (auto encoded = encode_own(segment); !encoded) return encoded;
    }
    decoded = decode(segment.own == nullptr ? encoded_ : *segment.own, rank, values);
    segment.own = nullptr;
  }
  if (!decoded) return decoded;
  if (!std::exchange(segment.begun, true)) std::ranges::fill(mean, 0.0F);
  add_scaled(mean, values, coefficients_[static_cast<size_t>(rank)]);
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
  encoded_.clear();
  try {
    contribution_.codec->encode(mean, encoded_, static_cast<uint32_t>(plan_.header.round));
  } catch (const InputError& error) {
    return failure(
        fmt::format("the mean of round {} cannot be sent: {}", plan_.header.round, error.what()));
  }
  // What the others will decode, not what was summed: all hold the same bits.
  const std::span<float> decoded = std::span(decoded_).first(segment.size);
  if (auto result = decode(encoded_, plan_.rank, decoded); !result) return result;
  if (has_residual) {
    float* const lost = contribution_.new_mean_residual.data() + segment.begin;
    for (size_t i = 0; i < segment.size; ++i) lost[i] = mean[i] - decoded[i];
  }
  std::ranges::copy(decoded, mean.begin());
  send(segment, PartKind::kMean, std::make_shared<const Bytes>(encoded_.begin(), encoded_.end()));
  num_missing_ -= 1;
  return {};
}

Result<void> Exchange::take_mean(Segment& segment) {
  if (auto result = decode(segment.mean.bytes, segment.share, mean_of(segment)); !result) {
    return result;
  }
  segment.mean.bytes = {};
  if (!contribution_.mean_residual.empty()) {
    std::ranges::copy(
        contribution_.mean_residual.subspan(segment.begin, segment.size),
        contribution_.new_mean_residual.begin() + static_cast<ptrdiff_t>(segment.begin));
  }
  num_missing_ -= 1;
  return {};
}

Result<void> Exchange::encode_own(const Segment& segment) {
  encoded_.clear();
  try {
    contribution_.encode(segment.begin, segment.size, static_cast<uint32_t>(plan_.header.round),
                         encoded_);
  } catch (const InputError& error) {
    return failure(
        fmt::format("the values of island '{}' for round {}, from value {}, cannot be sent: {}",
                    name(plan_.rank), plan_.header.round, segment.begin, error.what()));
  }
  return {};
}

Result<void> Exchange::decode(std::span<const std::byte> bytes, int32_t sender,
                              std::span<float> values) {
  try {
    contribution_.codec->decode(bytes, values, static_cast<uint32_t>(plan_.header.round));
  } catch (const InputError& error) {
    return failure(fmt::format("island '{}' sent values that cannot be used in round {}: {}",
                               name(sender), plan_.header.round, error.what()));
  }
  return {};
}

void Exchange::send(const Segment& segment, PartKind kind, std::shared_ptr<const Bytes> blob) {
  const bool to_owner = kind == PartKind::kContribution && !is_summed_here(segment);
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  for (int32_t i = 1; i < num_members; ++i) {
    const int32_t to = (plan_.rank + i) % num_members;
    if (to_owner && to != segment.share) continue;
    outgoing_.push_back({.to = to,
                         .part = {.header = plan_.header,
                                  .kind = kind,
                                  .sender = plan_.rank,
                                  .share = segment.share,
                                  .segment = segment.number,
                                  .total = blob->size()},
                         .blob = blob});
  }
}

std::string Exchange::debtors() const {
  std::vector<bool> owes(plan_.members.size(), false);
  for (const Segment& segment : segments_) {
    if (num_missing_ == 0) break;
    if (!is_summed_here(segment)) {
      if (!segment.mean.done) owes[static_cast<size_t>(segment.share)] = true;
      continue;
    }
    for (int32_t rank = 0; std::cmp_less(rank, owes.size()); ++rank) {
      const auto i = static_cast<size_t>(rank);
      if (rank != plan_.rank && !abstains(rank) && !segment.contributions[i].done) owes[i] = true;
    }
  }
  std::string out;
  for (size_t rank = 0; rank < owes.size(); ++rank) {
    if (owes[rank]) out += fmt::format("{}'{}'", out.empty() ? "" : ", ", plan_.members[rank]);
  }
  return out;
}

std::vector<Outgoing> Exchange::take_outgoing() { return std::exchange(outgoing_, {}); }

}  // namespace atl::collective
