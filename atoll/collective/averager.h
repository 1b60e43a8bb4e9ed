#pragma once
// A weighted mean among the members of a run, agreed round by round. `sync` calls it and knows
// nothing of peers; the swarm's session implements it over a transport, ThreadGroup for the threads
// of one process, Alone for one replica. All give the same bits for the same contributions.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/base/result.h"

namespace atl::codec {
class Codec;
}

namespace atl::collective {

/// The way of the values from those who have them to those who want the mean.
enum class Topology : uint8_t {
  kScatter,  // Each member sums one share and sends its encoded mean to all: two quantisations,
             // and each member sends about 2 (M - 1) / M times the values, however many there are.
  kGather,   // Everybody sends everything to all, and each sums: one quantisation, one trip, and
             // each member sends M - 1 times the values. For two members no more than kScatter.
};

/// Values that are not in host memory: they are encoded where they lie, and only the bytes cross.
struct DeviceValues {
  size_t count = 0;
  /// Appends what the contribution's codec makes of values [begin, begin + size) under `sequence`
  /// to `out`. Throws InputError as Codec::encode.
  std::function<void(size_t begin, size_t size, uint32_t sequence, Bytes& out)> encode;
};

/// Of rounds that are about no part of the model: measurements.
constexpr int32_t kNoFragment = int32_t{1} << 20;

/// What this replica brings to one round. Values, codec and prepare() are used on the exchange's
/// threads, by one at a time, and must stay valid and unchanged until wait(round) has returned.
struct Contribution {
  int64_t round = 0;     // Numbered for the whole run, from 0. Its low 32 bits are the sequence
                         // number under which contributions and means are encoded.
  int32_t fragment = 0;  // Which part of the parameters.
  int64_t step = 0;      // Inner steps taken when the values were snapshotted.
  /// Tokens learned since the last sync of this fragment. 0: this replica abstains (its values
  /// cannot be used); it takes part all the same and gets the mean of the others. If all abstain
  /// the mean is zero.
  int64_t weight = 0;
  int64_t num_trained = 0;        // Units of data (next_unit()) that this replica had trained on.
  std::span<const float> values;  // The snapshot, where it is in host memory; else empty.
  DeviceValues device_values;     // The snapshot, where it is elsewhere; else empty.
  /// How values travel; the same, by name, for all members.
  const codec::Codec* codec = nullptr;
  Topology topology = Topology::kScatter;
  /// Error feedback for the means, with kScatter: both as long as the values, or both empty. The
  /// owner of a share sends `mean + mean_residual` encoded, and writes what the codec lost of it
  /// to `new_mean_residual`; other members' shares are copied there. It counts once the round is
  /// committed: the caller swaps the two then.
  std::span<const float> mean_residual;
  std::span<float> new_mean_residual;
  /// Whether prepare() wants `own`; it costs another buffer of the values' size.
  bool needs_own = false;
  /// Runs on a thread of the exchange once the mean is known: computes the outer step into spare
  /// buffers, however long that takes, and returns the digest that all members compare before the
  /// commit. `mean` is the same bits on all members; `own` is this member's contribution as the
  /// others decode it (zero if it abstains), for error feedback, and empty unless needs_own. Both
  /// are valid only inside.
  std::function<Digest(std::span<const float> mean, std::span<const float> own)> prepare;

  size_t num_values() const { return values.size() + device_values.count; }
  /// Appends the encoding of values [begin, begin + size), wherever they lie, to `out`. Throws
  /// InputError as Codec::encode.
  void encode(size_t begin, size_t size, uint32_t sequence, Bytes& out) const;
};

/// "bf16 gather": what all members of a round must have in common.
std::string exchange_name(const Contribution& contribution);

struct CommittedRound;

/// A committed round: every member holds the same result.
struct Commit {
  int64_t round = 0;
  int32_t fragment = 0;
  int64_t step = 0;  // Of the snapshots: where the run stands.
  Digest digest{};
  /// This member's contribution is in the mean, or would be if it had not abstained. If not, what
  /// it learned counts in a later round.
  bool included = true;
  /// This member's contribution was left out, with weight 0, though it had one: it could not be
  /// used, or was an outlier. What it learned is lost as if it had abstained.
  bool left_out = false;
  /// What the round was made of (round_result.h); nothing where that was not kept.
  std::shared_ptr<const CommittedRound> record;
  /// prepare() has not run, or not on this: the mean is to be made from the record, and the outer
  /// step taken.
  bool missed = false;
  std::vector<std::string> members;     // Names, sorted: the order of summation.
  std::vector<std::string> abstainers;  // Those of weight 0.
  double own_share = 0;                 // This member's part of all weights, 0 to 1.
  bool stop = false;                    // All members checkpoint after this round and end (Ctrl-C).
  int64_t bytes_sent = 0;      // Of this round: messages between members, headers included, without
  int64_t bytes_received = 0;  // those of the transport below (which stats() counts).
  double seconds = 0;          // From begin() to the commit.
};

/// Elastic pace: a round that the run wants begun.
struct DueRound {
  int64_t round = 0;
  int32_t fragment = 0;
  int64_t base = -1;  // It rests on this round's result; -1: on what the run began with.
  int64_t step = 0;   // For Contribution::step.
};

struct ExchangeStats {
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};

/// Bytes of a fragment's state (parameters and what the outer optimiser keeps) after `round`, to
/// give to a newcomer; nothing if this replica's is of another round. Called on a thread of the
/// exchange.
using StateProvider = std::function<std::shared_ptr<const Bytes>(int32_t fragment, int64_t round)>;

/// What the others have decided, for a member to ask when it gets to it. Nothing here waits.
class Decisions {
 public:
  virtual ~Decisions() = default;
  /// The oldest round that was committed and that this replica has not begun, if there is one.
  virtual std::optional<Commit> take_missed() { return std::nullopt; }
  /// Elastic pace: the newest round that is due, once or more often; nothing if it was committed
  /// meanwhile.
  virtual std::optional<DueRound> take_due() { return std::nullopt; }
  /// Whether a round that was begun has its commit, or will have none since the run has failed.
  virtual bool is_decided(int64_t /*round*/) const { return true; }
  /// The step that the other members are at, once, when this one has caught up with them.
  virtual std::optional<int64_t> take_position() { return std::nullopt; }
};

/// Thread rule: all but stats() is called by the training thread.
class Averager : public Decisions {
 public:
  /// That the run began with: a global batch is cut into so many units. Others may take part.
  virtual int num_members() const = 0;
  /// Starts a round in the background. Several rounds may be in flight.
  virtual void begin(Contribution contribution) = 0;
  /// Blocks until the round is committed, with or without this member. A failure means the run is
  /// over for this member: it names who was lost and why.
  [[nodiscard]] virtual Result<Commit> wait(int64_t round) = 0;
  /// From here on newcomers may get their state from this replica.
  virtual void serve_state(StateProvider /*provider*/) {}
  virtual ExchangeStats stats() const = 0;
};

/// A group of one: the mean is its own contribution, through the codec as among several.
class Alone final : public Averager {
 public:
  int num_members() const override { return 1; }
  void begin(Contribution contribution) override;
  Result<Commit> wait(int64_t round) override;
  ExchangeStats stats() const override { return {}; }

 private:
  std::vector<Contribution> begun_;
};

}  // namespace atl::collective
