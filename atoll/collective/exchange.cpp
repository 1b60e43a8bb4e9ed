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

void accumulate(std::span<float> mean, std::span<const float> values, float coefficient) {
  ATOLL_CHECK(mean.size() == values.size());
  float* const to = mean.data();
  const float* const from = values.data();
  for (size_t i = 0; i < mean.size(); ++i) to[i] += coefficient * from[i];
}

std::vector<float> coefficients(std::span<const int64_t> weights) {
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<float> out;
  for (const int64_t weight : weights) {
    out.push_back(static_cast<float>(static_cast<double>(weight) / static_cast<double>(sum)));
  }
  return out;
}

Exchange::Exchange(Plan plan, const codec::Codec& codec, std::span<const float> values)
    : plan_(std::move(plan)), codec_(codec), values_(values), mean_(values.size()) {
  const size_t num_members = plan_.members.size();
  ATOLL_CHECK(plan_.weights.size() == num_members && plan_.shares.size() == num_members);
  size_t begin = 0;
  for (const int64_t share : plan_.shares) {
    begins_.push_back(begin);
    begin += static_cast<size_t>(share);
    if (share > 0) num_missing_ += 1;
  }
  ATOLL_CHECK(begin == values_.size());
  contributions_.resize(num_members);
  means_.resize(num_members);
  if (size_of(plan_.rank) > 0) num_contributions_missing_ = static_cast<int32_t>(num_members);
}

Exchange::~Exchange() = default;

size_t Exchange::size_of(int32_t owner) const {
  return static_cast<size_t>(plan_.shares[static_cast<size_t>(owner)]);
}

std::span<float> Exchange::mean_of(int32_t owner) {
  return std::span(mean_).subspan(begins_[static_cast<size_t>(owner)], size_of(owner));
}

const std::string& Exchange::name(int32_t rank) const {
  return plan_.members[static_cast<size_t>(rank)];
}

Result<void> Exchange::start() {
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  // The next member's share first, so that not all send to the same member at once.
  for (int32_t i = 1; i <= num_members; ++i) {
    const int32_t owner = (plan_.rank + i) % num_members;
    if (size_of(owner) == 0) continue;
    auto blob = std::make_shared<Bytes>();
    try {
      codec_.encode(values_.subspan(begins_[static_cast<size_t>(owner)], size_of(owner)), *blob);
    } catch (const InputError& error) {
      return failure(fmt::format("the values of island '{}' for round {} cannot be sent: {}",
                                 name(plan_.rank), plan_.header.round, error.what()));
    }
    if (owner == plan_.rank) {
      Incoming& own = contributions_[static_cast<size_t>(owner)];
      own.bytes = std::move(*blob);
      own.done = true;
      num_contributions_missing_ -= 1;
    } else {
      send_to(owner, PartKind::kContribution, owner, std::move(blob));
    }
  }
  return reduce_if_whole();
}

Result<void> Exchange::receive(const Part& part) {
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  if (part.header != plan_.header) {
    return failure(
        fmt::format("a part of run '{}', term {}, round {}, attempt {} came for round {}, "
                    "attempt {}",
                    part.header.run, part.header.term, part.header.round, part.header.attempt,
                    plan_.header.round, plan_.header.attempt));
  }
  if (part.sender < 0 || part.sender >= num_members || part.sender == plan_.rank) {
    return failure(fmt::format("a part came from unknown member {}", part.sender));
  }
  const bool is_mean = part.kind == PartKind::kMean;
  const int32_t owner = is_mean ? part.sender : plan_.rank;
  if (part.share != owner || size_of(owner) == 0) {
    return failure(fmt::format("island '{}' sent a part of share {}, which is not its to send here",
                               name(part.sender), part.share));
  }
  Incoming& incoming = (is_mean ? means_ : contributions_)[static_cast<size_t>(part.sender)];
  auto accepted = accept(incoming, part, codec_.max_encoded_bytes(size_of(owner)));
  if (!accepted || !incoming.done) return accepted;
  if (!is_mean) {
    num_contributions_missing_ -= 1;
    return reduce_if_whole();
  }
  auto decoded = decode(incoming, part.sender, mean_of(owner));
  incoming.bytes = {};
  if (decoded) num_missing_ -= 1;  // A share that cannot be used stays missing for good.
  return decoded;
}

Result<void> Exchange::accept(Incoming& incoming, const Part& part, size_t expected) {
  const std::string& sender = name(part.sender);
  if (part.total != expected) {
    return failure(fmt::format("island '{}' sent a part of {} bytes where {} are due", sender,
                               part.total, expected));
  }
  if (incoming.done || part.offset < incoming.bytes.size()) {
    return failure(fmt::format("island '{}' sent bytes {} to {} of share {} twice", sender,
                               part.offset, part.offset + part.data.size(), part.share));
  }
  if (part.offset > incoming.bytes.size() || part.data.empty() ||
      part.data.size() > expected - incoming.bytes.size()) {
    return failure(fmt::format(
        "island '{}' sent {} bytes at {} of share {}, where byte {} of {} is "
        "next",
        sender, part.data.size(), part.offset, part.share, incoming.bytes.size(), expected));
  }
  incoming.bytes.reserve(expected);
  incoming.bytes.insert(incoming.bytes.end(), part.data.begin(), part.data.end());
  incoming.done = incoming.bytes.size() == expected;
  return {};
}

Result<void> Exchange::decode(const Incoming& incoming, int32_t sender, std::span<float> values) {
  try {
    codec_.decode(incoming.bytes, values);
  } catch (const InputError& error) {
    return failure(fmt::format("island '{}' sent values that cannot be used in round {}: {}",
                               name(sender), plan_.header.round, error.what()));
  }
  return {};
}

Result<void> Exchange::reduce_if_whole() {
  if (size_of(plan_.rank) == 0 || num_contributions_missing_ > 0) return {};
  const std::span<float> mean = mean_of(plan_.rank);
  const std::vector<float> factors = coefficients(plan_.weights);
  std::vector<float> values(mean.size());
  for (size_t rank = 0; rank < contributions_.size(); ++rank) {
    Incoming& incoming = contributions_[rank];
    if (auto decoded = decode(incoming, static_cast<int32_t>(rank), values); !decoded) {
      return decoded;
    }
    incoming.bytes = {};
    accumulate(mean, values, factors[rank]);
  }
  Incoming encoded;
  try {
    codec_.encode(mean, encoded.bytes);
  } catch (const InputError& error) {
    return failure(
        fmt::format("the mean of round {} cannot be sent: {}", plan_.header.round, error.what()));
  }
  // What the others will decode, not what was summed: all hold the same bits.
  if (auto decoded = decode(encoded, plan_.rank, mean); !decoded) return decoded;
  const auto blob = std::make_shared<const Bytes>(std::move(encoded.bytes));
  const auto num_members = static_cast<int32_t>(plan_.members.size());
  for (int32_t i = 1; i < num_members; ++i) {
    send_to((plan_.rank + i) % num_members, PartKind::kMean, plan_.rank, blob);
  }
  num_missing_ -= 1;
  return {};
}

void Exchange::send_to(int32_t to, PartKind kind, int32_t share,
                       std::shared_ptr<const Bytes> blob) {
  outgoing_.push_back({.to = to,
                       .part = {.header = plan_.header,
                                .kind = kind,
                                .sender = plan_.rank,
                                .share = share,
                                .total = blob->size()},
                       .blob = std::move(blob)});
}

std::string Exchange::debtors() const {
  std::string out;
  for (int32_t rank = 0; std::cmp_less(rank, plan_.members.size()); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const bool owes_part = size_of(plan_.rank) > 0 && !contributions_[i].done;
    const bool owes_mean = rank != plan_.rank && size_of(rank) > 0 && !means_[i].done;
    if (owes_part || owes_mean) out += fmt::format("{}'{}'", out.empty() ? "" : ", ", name(rank));
  }
  return out;
}

std::vector<Outgoing> Exchange::take_outgoing() { return std::exchange(outgoing_, {}); }

}  // namespace atl::collective
