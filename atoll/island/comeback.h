#pragma once
// How an island goes on from what is on its disk, in lockstep: it computes the steps behind its
// newest checkpoint again, and ends with the bits that it had (recorded_rounds.h, diary.h). Where
// something is missing, or comes out otherwise than before, it says so and goes on from the newest
// commit.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/collective/averager.h"
#include "atoll/island/holdings.h"
#include "atoll/island/recorded_rounds.h"
#include "atoll/island/training_run.h"
#include "atoll/run/diary.h"
#include "atoll/swarm/messages.h"

namespace atl::island {

class Comeback {
 public:
  /// Reads the diary in that run directory.
  explicit Comeback(const std::filesystem::path& run_folder);

  /// What this island was in `run`, should `newest` be the newest that it holds.
  swarm::Former former(const Holding& newest, const std::string& run) const;
  /// The last rounds that it has: others may lack them.
  std::vector<std::shared_ptr<const collective::CommittedRound>> newest_rounds() const;
  /// What a strategy is to call instead of the others. Both outlive its use.
  collective::Averager& before(collective::Averager& others);
  run::Diary& diary() { return diary_; }

  /// After before(): makes `run` of `parts()`, which have what before() gave, and puts it where
  /// `holding` and its diary lead. `returns`: as the member that it was. Throws InputError as
  /// TrainingRun::resume().
  void go_on_from(const Holding& holding, bool returns, std::optional<TrainingRun>& run,
                  const std::function<TrainingParts()>& parts);

 private:
  std::filesystem::path folder_;
  run::Diary diary_;
  collective::Averager* others_ = nullptr;
  std::optional<RecordedRounds> rounds_;
};

}  // namespace atl::island
