#include "atoll/collective/averager.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"

namespace atl::collective {

std::string exchange_name(const Contribution& contribution) {
  ATOLL_CHECK(contribution.codec != nullptr, "a contribution names its codec");
  return fmt::format("{} {}{}", contribution.codec->name(),
                     contribution.topology == Topology::kGather ? "gather" : "scatter",
                     contribution.mean_residual.empty() ? "" : " with residual");
}

void Contribution::encode(size_t begin, size_t size, uint32_t sequence, Bytes& out) const {
  if (device_values.encode) {
    device_values.encode(begin, size, sequence, out);
  } else {
    codec->encode(values.subspan(begin, size), out, sequence);
  }
}

void Alone::begin(Contribution contribution) { begun_.push_back(std::move(contribution)); }

Result<Commit> Alone::wait(int64_t round) {
  const auto found = std::ranges::find(begun_, round, &Contribution::round);
  ATOLL_CHECK(found != begun_.end());
  const Contribution contribution = std::move(*found);
  begun_.erase(found);
  Exchange exchange(
      {.header = {.round = round},
       .numbers = {0},
       .members = {"alone"},
       .weights = {contribution.weight},
       .shares = equal_shares(contribution.num_values(), contribution.topology, 1),
       .segment_values = segment_size(contribution.num_values(), contribution.topology)},
      contribution);
  while (!exchange.complete()) {
    if (auto worked = exchange.work(); !worked) return tl::unexpected(worked.error());
  }
  Commit commit{.round = round,
                .fragment = contribution.fragment,
                .step = contribution.step,
                .members = {"alone"}};
  commit.digest = contribution.prepare(exchange.mean(), exchange.own());
  if (contribution.weight == 0) commit.abstainers = commit.members;
  commit.own_share = contribution.weight == 0 ? 0 : 1;
  return commit;
}

}  // namespace atl::collective
