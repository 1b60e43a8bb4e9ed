// A member fed parts made of any bytes: it refuses them or takes them in, and never reads or writes
// out of bounds. What it takes in it decodes and sums.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"

namespace {

using atl::collective::Topology;
using atl::swarm::Part;
using atl::swarm::PartKind;

constexpr size_t kSegment = 4;

/// A part as the protocol has it, made of `bits`, with an encoding that decodes.
Part right_part(uint8_t bits, const atl::codec::Codec& codec, const atl::swarm::Header& header,
                Topology topology) {
  const bool is_mean = (bits & 1) != 0 && topology == Topology::kScatter;
  Part part{.header = header,
            .kind = is_mean ? PartKind::kMean : PartKind::kContribution,
            .sender = 1 + (bits >> 1) % 2,
            .segment = (bits >> 2) % 3};
  // 10 values in segments of 4.
  const size_t size = part.segment == 2 ? 2 : 4;
  codec.encode(std::vector<float>(size, 0.25F), part.data, static_cast<uint32_t>(header.round));
  part.total = part.data.size();
  return part;
}

/// The next attempt, from which that member's contribution is left out.
atl::collective::Exchange::Plan without(atl::collective::Exchange::Plan plan, int32_t number) {
  const auto found = std::ranges::find(plan.numbers, number);
  plan.weights[static_cast<size_t>(found - plan.numbers.begin())] = 0;
  plan.header.attempt += 1;
  return plan;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const auto bf16 = atl::codec::make_codec("bf16");
  static const std::vector<float> values(10, 0.5F);
  static const std::vector<float> residual(10, 0.1F);
  std::vector<float> new_residual(10);
  atl::collective::Contribution mine{
      .values = values, .codec = bf16.get(), .needs_own = (data[0] & 1) != 0};
  if ((data[0] & 2) != 0) mine.topology = Topology::kGather;
  if ((data[0] & 6) == 4) {
    mine.mean_residual = residual;
    mine.new_mean_residual = new_residual;
  }
  atl::collective::Exchange exchange({.header = {.term = 1, .round = 2, .attempt = 0},
                                      .rank = 0,
                                      .numbers = {0, 1, 2},
                                      .members = {"a", "b", "c"},
                                      .weights = {1, 2, (data[0] & 8) != 0 ? 0 : 3},
                                      .shares = {1, 2, 0},
                                      .segment_values = kSegment},
                                     mine);
  atl::ByteReader reader(std::as_bytes(std::span(data + 1, size - 1)));
  try {
    for (int i = 0; i < 20 && reader.remaining() > 0; ++i) {
      Part part = right_part(reader.get<uint8_t>(), *bf16, exchange.plan().header, mine.topology);
      const auto wrong = reader.get<uint8_t>();  // Which fields are not as they should be.
      if ((wrong & 1) != 0) part.sender = reader.get<int32_t>();
      if ((wrong & 2) != 0) part.header.attempt = reader.get<int8_t>();
      if ((wrong & 4) != 0) part.segment = reader.get<int32_t>();
      if ((wrong & 8) != 0) part.offset = reader.get<uint8_t>();
      if ((wrong & 16) != 0) part.total = reader.get<uint64_t>();
      if ((wrong & 32) != 0) part.data[reader.get<uint8_t>() % part.data.size()] = std::byte{0xFF};
      if ((wrong & 64) != 0) {
        const auto bytes = reader.get_bytes(std::min<size_t>(reader.remaining(), 24));
        part.data.assign(bytes.begin(), bytes.end());
      }
      if (!exchange.receive(part)) return 0;
      while (true) {
        const auto worked = exchange.work((wrong & 128) == 0);
        if (!worked && !exchange.is_culprit_a_contributor()) return 0;
        if (!worked) exchange.reopen(without(exchange.plan(), exchange.culprit()));
        if (worked && !*worked) break;
      }
    }
  } catch (const atl::InputError&) {
    return 0;  // The input was too short.
  }
  return 0;
}
