#include "atoll/group/gradient_sums.h"

namespace atl::group {

void GradientSums::begin(Span span, std::vector<Transfer>& transfers) {
  const auto of = [&](Span part) { return gradients_P_.slice(0, part.first, part.second); };
  switch (who_) {
    case SumsFor::kAll:
      transfers.push_back(processes_.begin_sum(of(span)));
      return;
    case SumsFor::kLeader:
      transfers.push_back(processes_.begin_sum_to(of(span), 0));
      return;
    case SumsFor::kOwners:
      for (const auto& [owner, part] : parts_.owners(span)) {
        transfers.push_back(processes_.begin_sum_to(of(part), owner));
      }
  }
}

Span GradientSums::own() const {
  const Span all{0, parts_.size()};
  switch (who_) {
    case SumsFor::kAll:
      return all;
    case SumsFor::kLeader:
      return processes_.rank() == 0 ? all : Span{0, 0};
    case SumsFor::kOwners:
      break;
  }
  return parts_.of(processes_.rank());
}

}  // namespace atl::group
