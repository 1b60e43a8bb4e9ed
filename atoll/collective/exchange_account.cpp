// What a member can say of an attempt: who owes it what, and how contributions are to each other in
// its share.
#include <utility>

#include "atoll/collective/exchange.h"
#include "atoll/swarm/rules.h"

namespace atl::collective {

void Exchange::make_room_for_samples() {
  const size_t num_members = plan_.members.size();
  const bool compares = swarm::num_products(num_members) > 0;
  const auto room_of = [&](const Segment& segment) {
    const bool is_own = compares && segment.owner == plan_.rank;
    return is_own ? num_members * sampling().most_of(segment.size) : 0;
  };
  size_t count = 0;
  for (const Segment& segment : segments_) count += room_of(segment);
  samples_memory_ = nullptr;  // Of the attempt before.
  if (count > 0) samples_memory_ = memory_->pages.take(count * sizeof(float));
  float* next = count > 0 ? reinterpret_cast<float*>(samples_memory_->data()) : nullptr;
  for (Segment& segment : segments_) {
    segment.measures = SegmentMeasures(num_members, {next, room_of(segment)});
    if (next != nullptr) next += room_of(segment);
  }
}

swarm::Measures Exchange::measures() const {
  const size_t num_members = plan_.members.size();
  swarm::Measures sums{.squares = std::vector<double>(num_members),
                       .products = std::vector<double>(swarm::num_products(num_members))};
  for (const Segment& segment : segments_) segment.measures.add_to(sums.squares, sums.products);
  return sums;
}

std::vector<Debtor> Exchange::debtors() const {
  std::vector<bool> owes(plan_.members.size(), false);  // A contribution.
  std::vector<bool> owes_mean(plan_.members.size(), false);
  if (failed_) return {};  // Another attempt is to come.
  for (const Segment& segment : segments_) {
    if (num_missing_ == 0) break;
    if (!is_summed_here(segment)) {
      if (!segment.incoming_mean.done()) owes_mean[static_cast<size_t>(segment.owner)] = true;
      continue;
    }
    for (int32_t rank = 0; std::cmp_less(rank, owes.size()); ++rank) {
      const auto i = static_cast<size_t>(rank);
      if (rank == plan_.rank || abstains(rank)) continue;
      const auto found = segment.contributions.find(plan_.numbers[i]);
      if (found == segment.contributions.end() || !found->second.done()) owes[i] = true;
    }
  }
  std::vector<Debtor> debtors;
  for (size_t rank = 0; rank < owes.size(); ++rank) {
    if (owes[rank] || owes_mean[rank]) debtors.push_back({plan_.numbers[rank], !owes[rank]});
  }
  return debtors;
}

}  // namespace atl::collective
