#include "atoll/island/comeback.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "atoll/base/check.h"
#include "atoll/run/events.h"

namespace atl::island {
Comeback::Comeback(const std::filesystem::path& run_folder, EventSink events)
    : folder_(rounds_in(run_folder)), diary_(folder_), events_(std::move(events)) {}

swarm::Former Comeback::former(const Holding& newest, const std::string& run) const {
  const auto& membership = diary_.membership();
  // The coordinator may not have heard that it left; as that member it would be waited for in the
  // rounds that it skipped.
  if (newest.left) return {};
  if (!membership || membership->run != run || newest.applied.empty()) return {};
  return {.number = membership->member,
          .term = membership->term,
          .num_leased = diary_.trained_at(INT64_MAX),
          .rounds = newest.applied};
}

std::vector<std::shared_ptr<const collective::CommittedRound>> Comeback::newest_rounds() const {
  std::map<int32_t, run::LoggedRound> newest;  // By fragment.
  for (const run::LoggedRound& round : run::list_rounds(folder_)) {
    const auto [known, is_new] = newest.try_emplace(round.fragment, round);
    if (!is_new && known->second.round < round.round) known->second = round;
  }
  std::vector<std::shared_ptr<const collective::CommittedRound>> rounds;
  for (const auto& [fragment, round] : newest) {
    rounds.push_back(
        std::make_shared<const collective::CommittedRound>(run::read_round(round.file)));
  }
  return rounds;
}

collective::Averager& Comeback::before(collective::Averager& others) {
  others_ = &others;
  return rounds_.emplace(others, diary_, events_);
}

void Comeback::go_on_from(const Holding& holding, bool returns, std::optional<TrainingRun>& run,
                          const std::function<TrainingParts()>& parts) {
  ATOLL_CHECK(rounds_.has_value(), "before() comes first");
  const std::string checkpoint = holding.checkpoint.filename().string();
  const int64_t from = holding.checkpoint_step;
  const int64_t num_done = std::max<int64_t>(0, diary_.last_step() - from);
  const int64_t committed = holding.rounds.empty() ? from : holding.rounds.back().step;
  const auto say = [&](int64_t num_rounds) {
    events_(
        run::StepsComputedAgain{.steps = num_done, .checkpoint = checkpoint, .rounds = num_rounds});
  };
  run.emplace(parts());
  if (holding.rounds.empty()) {
    if (num_done > 0) say(0);
    rounds_->go_on(returns);
    run->set_trained(diary_.trained_at(from));
    return run->resume(holding.checkpoint);
  }
  if (diary_.has_steps(from, committed)) {
    say(std::ssize(holding.rounds));
    rounds_->take_from_disk(holding.rounds);
    run->set_trained(diary_.trained_at(from));
    run->resume(holding.checkpoint);
    const auto done = run->compute_again([this] { return rounds_->has_left(); });
    if (done) return rounds_->go_on(returns);
    events_(run::NotComputedAgain{done.error().message});
    run.reset();
    rounds_.emplace(*others_, diary_, events_);  // In the same place.
    run.emplace(parts());
  } else {
    events_(run::NotComputedAgain{
        fmt::format("which rows the steps after checkpoint '{}' had is not on disk", checkpoint)});
  }
  run->set_trained(diary_.trained_at(committed));
  run->resume(holding.checkpoint, holding.rounds);
  events_(run::RoundsReplayed{
      .step = run->step(), .checkpoint = checkpoint, .rounds = std::ssize(holding.rounds)});
}

}  // namespace atl::island
