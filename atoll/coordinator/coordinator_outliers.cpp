// Whose contribution does not count, though it was made: it cannot be used, or is unlike the usual
// ones. Such a member abstains from the round's next attempts, and stays.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

namespace {

IslandLeftOut event_of(int64_t round, const Outliers::Outlier& outlier) {
  const auto& [number, offence, figure, usual] = outlier;
  const bool is_norm = offence == Outliers::Offence::kNorm;
  return {.round = round,
          .offence = is_norm ? "norm" : "direction",
          .figure = figure,
          .usual = usual,
          .reason = is_norm ? fmt::format("its norm is {:.2g}, {:.0f} times the usual", figure,
                                          figure / usual)
                            : fmt::format("its cosine to the mean of the others is {:.2f}, where "
                                          "{:.2f} is usual",
                                          figure, usual)};
}

}  // namespace

void Coordinator::leave_out(Round& round, int32_t number, IslandLeftOut event) {
  event.island = name(number);
  log(event);
  round.leave_out(number);
  roster_.at(number).note_left_out();
}

bool Coordinator::leave_outliers_out(int64_t round_number, Round& round) {
  const int32_t fragment = round.begun().begin()->second.fragment;
  if (fragment == kNoFragment) return false;
  const auto outliers =
      Outliers(options_.outlier_factor)
          .judge(book_.norms(fragment), round.contributed(),
                 options_.compares_directions ? round.compared() : Outliers::Compared());
  for (const Outliers::Outlier& outlier : outliers) {
    leave_out(round, outlier.number, event_of(round_number, outlier));
  }
  return !outliers.empty();
}

void Coordinator::on(int32_t number, const Unusable& unusable) {
  Round* const round = rounds_.find(unusable.header.round);
  if (round == nullptr) return;  // Committed without it.
  const int32_t contributor = unusable.contributor;
  if (contributor < 0) return violate(number, "named a contributor that is none");
  // Of an attempt that is over, or has no such member any more.
  if (unusable.header.attempt != round->attempt() || !round->takes_part(number) ||
      !round->takes_part(contributor)) {
    return;
  }
  if (contributor == number || round->begun().at(contributor).weight == 0) {
    return violate(
        number, fmt::format("cannot use what nobody sent it in round {}", unusable.header.round));
  }
  leave_out(*round, contributor,
            {.round = unusable.header.round,
             .offence = "unusable",
             .reason = fmt::format("'{}' cannot use its values: {}", name(number),
                                   printable(unusable.reason))});
  advance(unusable.header.round);
}

}  // namespace atl::swarm
