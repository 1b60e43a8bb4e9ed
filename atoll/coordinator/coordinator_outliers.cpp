// Whose contribution does not count, though it was made: it cannot be used, or is far larger than
// usual. Such a member abstains from the round's next attempts, and stays.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

void Coordinator::leave_out(Round& round, int64_t round_number, int32_t number,
                            const std::string& why) {
  log(IslandLeftOut{.island = name(number), .round = round_number, .reason = why});
  round.leave_out(number);
  roster_.at(number).note_left_out();
}

bool Coordinator::leave_outliers_out(int64_t round_number, Round& round) {
  const int32_t fragment = round.begun().begin()->second.fragment;
  if (fragment == kNoFragment) return false;
  const auto outliers = outliers_.judge(fragment, round.norms());
  for (const auto& [number, norm, usual] : outliers) {
    leave_out(round, round_number, number,
              fmt::format("its norm is {:.2g}, {:.0f} times the usual", norm, norm / usual));
  }
  return !outliers.empty();
}

void Coordinator::note_norms(const Round& round, int32_t fragment) {
  const bool all_known = round.prepared().size() == round.ways().members.size();
  if (fragment != kNoFragment && all_known) outliers_.committed(fragment, round.norms());
}

void Coordinator::on(int32_t number, const Unusable& unusable) {
  Round* const round = rounds_.find(unusable.header.round);
  if (round == nullptr) return;  // Committed without it.
  const int32_t contributor = unusable.contributor;
  if (contributor < 0) return violate(number, "named a contributor that is none");
  // Of an attempt that is over, or has no such member any more.
  const Ways& ways = round->ways();
  if (unusable.header.attempt != round->attempt() || !ways.has(number) || !ways.has(contributor))
    return;
  if (contributor == number || round->begun().at(contributor).weight == 0) {
    return violate(
        number, fmt::format("cannot use what nobody sent it in round {}", unusable.header.round));
  }
  leave_out(
      *round, unusable.header.round, contributor,
      fmt::format("'{}' cannot use its values: {}", name(number), printable(unusable.reason)));
  advance(unusable.header.round);
}

}  // namespace atl::swarm
