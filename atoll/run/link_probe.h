#pragma once
// What the islands must know to choose a codec together (sync/auto_choice.h): before the first step
// they exchange something small, something large, and then what each has measured.
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/sync/auto_choice.h"

namespace atl::run {

/// The rounds that probe_links() takes, from 0.
constexpr int64_t kProbeRounds = 4;

/// What every member measured, by rank; the same bits on all of them. `step_seconds` is this one's.
[[nodiscard]] Result<std::vector<sync::Measured>> probe_links(collective::Averager& averager,
                                                              int rank, double step_seconds,
                                                              const Clock& clock);

/// An averager whose round 0 is round `offset` of another: the rounds before are the probe's.
class OffsetAverager final : public collective::Averager {
 public:
  OffsetAverager(collective::Averager& inner, int64_t offset) : inner_(inner), offset_(offset) {}
  int num_members() const override { return inner_.num_members(); }
  void begin(collective::Contribution contribution) override;
  Result<collective::Commit> wait(int64_t round) override;
  collective::ExchangeStats stats() const override { return inner_.stats(); }

 private:
  collective::Averager& inner_;
  int64_t offset_;
};

}  // namespace atl::run
