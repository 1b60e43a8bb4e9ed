#pragma once
// What the islands must know to choose a codec together (method/auto_choice.h): before the first
// step they exchange small rounds, then larger and larger ones, and after each what every member
// has measured.
//
// A new connection begins slowly and doubles what it sends with each round trip: a round that is
// over after a few of them says nothing of the line. So rounds grow, fourfold, until one takes much
// longer than a small one, carries as much as training ever will in one (at most 32 MiB), or the
// next might take more than 3 s. Something may hold a round up for once: of small rounds the median
// counts, and what would be the last large one is taken again. All this takes about 5 s on a line
// of 20 kbit/s, and at worst 15 s where a round trip takes 150 ms.
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/method/auto_choice.h"

namespace atl::island {

/// The most rounds that probe_links() takes, from 0. How many it does depends on the line.
constexpr int64_t kProbeRounds = 64;

/// What every member measured, by rank; the same bits on all of them. `step_seconds` is this one's,
/// `most_bytes` the most that a member will send in a round of training, which all know alike. A
/// member alone has no line: its other figures are 0.
[[nodiscard]] Result<std::vector<method::Measured>> probe_links(collective::Averager& averager,
                                                                int rank, double step_seconds,
                                                                double most_bytes,
                                                                const Clock& clock);

/// An averager whose round 0 is round `offset` of another: the rounds before are the probe's.
class OffsetAverager final : public collective::Averager {
 public:
  OffsetAverager(collective::Averager& inner, int64_t offset) : inner_(inner), offset_(offset) {}
  int num_members() const override { return inner_.num_members(); }
  void begin(collective::Contribution contribution) override;
  Result<collective::Commit> wait(int64_t round) override;
  std::optional<collective::Commit> take_missed() override;
  std::optional<int64_t> take_position() override { return inner_.take_position(); }
  void serve_state(collective::StateProvider provider) override;
  collective::ExchangeStats stats() const override { return inner_.stats(); }

 private:
  collective::Averager& inner_;
  int64_t offset_;
};

}  // namespace atl::island
