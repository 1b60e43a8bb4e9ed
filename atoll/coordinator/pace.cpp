#include "atoll/coordinator/pace.h"

#include "atoll/coordinator/elastic.h"
#include "atoll/coordinator/lockstep.h"

namespace atl::swarm {

std::unique_ptr<Pace> make_pace(const CoordinatorOptions& options) {
  if (options.round_units > 0) return std::make_unique<Elastic>(options);
  return std::make_unique<Lockstep>(options);
}

int64_t units_left(int32_t number, const Seat& seat, const Book& book) {
  const auto found = book.leases().members().find(number);
  const int64_t granted = found == book.leases().members().end() ? 0 : found->second.num_granted;
  return granted - seat.num_trained();
}

}  // namespace atl::swarm
