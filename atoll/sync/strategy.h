#pragma once
// The training loop calls one Strategy and knows no algorithm:
//   loss.backward();
//   strategy.reduce_gradients(step);   // data-parallel acts here
//   optimiser.step();
//   strategy.after_step(step);         // DiLoCo acts here
// What is to be done when is decided in rounds::Rounds; a strategy does it with tensors. It is one
// file, an entry in method.cpp and its constructor in methods.cpp.
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/round_result.h"
#include "atoll/method/layer_metrics.h"
#include "atoll/method/method.h"
#include "atoll/method/sync_options.h"
#include "atoll/rounds/rounds.h"
#include "atoll/sync/host.h"
#include "atoll/weights/config.h"

namespace atl::sync {

using rounds::Fate;
using rounds::OwnRound;

/// What a strategy works on. Everything outlives it.
struct Replica {
  at::Tensor values_P;     // Live parameters, flat FP32, on any device.
  at::Tensor gradients_P;  // Same shape.
  int64_t tokens_per_step = 0;
  rounds::PaceOptions pace{};
  std::span<const weights::ParameterSpec> specs{};  // What lies where in P.
  int64_t rank = 0;                                 // This member among the run's.
  uint64_t seed = 0;                                // The run's.
  const int64_t* num_trained = nullptr;             // Units of data so far, for the data leases.
  /// Called before catch_up() changes parameters and state, so that who reads them can be done.
  std::function<void()> before_change{};
  /// Where what the outer optimiser keeps lies, in files without a name whose pages rest between
  /// rounds; empty: in memory.
  std::filesystem::path outer_folder{};
  /// For tests: takes the ways of other devices on the CPU too, as far as they go.
  bool as_if_on_device = false;
};

struct SyncStats {
  int64_t rounds = 0;
  double stall_seconds = 0;    // The training thread did nothing for training.
  double blocked_seconds = 0;  // It waited for the others' part of a round.
  std::string digest;          // Of the last committed round, hexadecimal.
};

/// A round as this replica saw it.
struct RoundRecord {
  int64_t step = 0;  // After which, or (data-parallel) within which, its result was used.
  collective::Commit commit;
  bool abstained = false;      // This replica counted with weight 0.
  Digest before{};             // The rounds::state_name() before it.
  double stall_seconds = 0;    // Training stood still for it, before and after its journey.
  size_t num_values = 0;       // That it was about,
  std::string codec{};         // and how they travelled.
  double prepare_seconds = 0;  // The outer step and its digest, beside training.
  std::vector<method::LayerRecord> layers;  // With sync.layer_metrics only.
};

class Strategy {
 public:
  /// References outlive it.
  Strategy(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
           const Clock& clock);
  virtual ~Strategy() = default;
  const rounds::Pace& pace() const { return rounds_.pace(); }
  /// The run's step once this replica has taken another, `step` before it.
  int64_t step_after(int64_t step) { return rounds_.step_after(step); }
  /// After backward, before the clip. `step` counts from 1 here and below.
  [[nodiscard]] Result<void> reduce_gradients(int64_t step);
  /// After the optimiser's update.
  [[nodiscard]] Result<void> after_step(int64_t step);
  /// Before a step, `step` of them done: takes in what was committed without this replica, up to
  /// what is to be kept.
  [[nodiscard]] Result<rounds::CaughtUp> catch_up(int64_t step);
  /// Gives newcomers the state from here on; this object must outlive the averager's threads.
  void serve();
  /// Bytes of a fragment's state, which newcomers get. 0: the method takes none.
  size_t state_bytes(int64_t fragment) const;
  /// A newcomer: takes the state of a fragment after `round`. Fails when it is not the one of that
  /// digest.
  [[nodiscard]] Result<void> import_state(int64_t fragment, int64_t round, const Digest& digest,
                                          std::span<const std::byte> bytes);
  /// A newcomer, last: has all fragments' states, of a run that stands at `step`. `last_round` is
  /// the newest of these if it is of the run's last step; -1: none is.
  void joined(int64_t step, int64_t last_round = -1);
  /// By fragment: the digest of its state, as it was committed; zeros before that. Nothing where
  /// commits do not say what the published parameters are (methods that take no newcomers).
  const std::vector<Digest>& held() const { return rounds_.standing().held(); }
  /// By fragment: the newest round in its state; -1: none of this run is.
  const std::vector<int64_t>& applied() const { return rounds_.standing().applied(); }
  /// Resuming: both of the checkpoint, whose tensors were restored.
  void restore_held(std::vector<Digest> held, std::vector<int64_t> applied = {});
  /// Resuming: takes the outer step of a round that was committed after the checkpoint. `before` is
  /// the rounds::state_name() before it. Fails when this replica's state is another.
  [[nodiscard]] Result<void> replay(const collective::CommittedRound& round, const Digest& before);
  /// Resuming, last: has replayed all rounds; the run stands at `step`.
  void replayed(int64_t step);
  /// True when after_step(step) ends with all replicas equal, but for what is a replica's own.
  bool syncs_after(int64_t step) const { return pace().syncs_after(step, lands(step)); }
  /// The model that the run publishes: what is evaluated and saved. (P,) FP32 on the CPU or the
  /// replica's device; valid until the next call.
  virtual at::Tensor global_parameters() const = 0;
  /// Tensors (P,) that a checkpoint must hold besides the live and the published parameters;
  /// resuming writes into them.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() { return {}; }
  /// Resuming: the published parameters of the checkpoint.
  virtual void restore_global(const at::Tensor& global_P) = 0;
  /// Resuming, last: everything was restored as it was after `step`. What was on its way then is
  /// sent again.
  void resumed(int64_t step);
  /// The run ends here, early: waits for what is on its way, and leaves it unused. The run that
  /// resumes sends it again.
  [[nodiscard]] Result<void> drain();
  /// This replica alone is to leave, once it may: what it has learned is then with the others.
  void leave_soon() { rounds_.leave_soon(); }
  bool may_leave(int64_t step) const { return rounds_.may_leave(step, lands(step)); }
  const SyncStats& stats() const { return stats_; }
  /// How often after_step() and catch_up() may have changed the live parameters.
  int64_t num_changes() const { return num_changes_; }
  /// Someone asked the whole run to end here (Ctrl-C), and all agreed.
  bool stop_requested() const { return rounds_.standing().stops(); }
  /// The rounds committed since the last call.
  std::vector<RoundRecord> take_rounds() { return std::exchange(records_, {}); }
  /// This step's update went wrong here (an infinite gradient): the next round that follows an
  /// update counts this replica's part with weight 0. Methods that reduce gradients have none, and
  /// have judged this step's gradient before.
  void abstain() {
    if (!method_.reduces_gradients) rounds_.abstain();
  }
  bool abstains() const { return rounds_.abstains(); }
  /// The rounds on their way that count with weight 0. After a resume they do so again.
  std::vector<int64_t> abstained_rounds() const { return rounds_.abstained(); }
  void abstain_again(std::vector<int64_t> rounds) { rounds_.abstain_again(std::move(rounds)); }

 protected:
  virtual Result<void> do_reduce_gradients(int64_t /*step*/) { return {}; }
  /// Begins a round that is due.
  virtual void launch(const OwnRound& /*own*/) {}
  /// Takes the result of a round that was begun; prepare() has run.
  virtual void take(const OwnRound& /*own*/, Fate /*fate*/) {}
  /// Everything was restored; these were on their way.
  virtual void do_resume(const std::vector<OwnRound>& on_their_way) {
    for (const OwnRound& own : on_their_way) launch(own);
  }
  /// Whether what is taken after `step` makes the live parameters the published ones.
  virtual bool lands(int64_t /*step*/) const { return true; }
  /// For methods that take newcomers: the tensors of a fragment's state (contiguous), each in
  /// pieces, in the order of their digest (state_digest()).
  virtual std::vector<std::vector<at::Tensor>> state_of(int64_t /*fragment*/) const { return {}; }
  /// A round that this replica has not begun, the `number`-th of its fragment: takes the outer step
  /// that its mean makes and moves the live parameters by as much as the global ones. Returns the
  /// digest of the state after it.
  virtual Digest absorb(const collective::Commit& /*commit*/, int64_t /*number*/,
                        std::span<const float> /*mean*/) {
    return {};
  }
  /// The live parameters are no longer those of the inner optimiser's last step: taking and
  /// absorbing say so by themselves, a launch() that changes them does.
  void note_change() { ++num_changes_; }
  /// The state was imported: the live parameters are the published ones.
  virtual void do_join() {}
  int64_t tokens_of(const OwnRound& own) const { return own.num_steps * replica_.tokens_per_step; }
  /// The published state changes only in here: newcomers read it on another thread.
  template <typename Change>
  void publish(int64_t fragment, int64_t round, const Change& change) {
    const std::scoped_lock lock(state_mutex_);
    change();
    rounds_.applied(fragment, round);
  }
  /// Moves the live parameters [begin, end) by that share of what the global ones moved.
  void follow(int64_t begin, int64_t end, const at::Tensor& now, const at::Tensor& before,
              float share = 1);
  /// Where the global copy is to lie, and what the outer optimiser keeps.
  at::Device outer_device() const;
  /// (size,) zeros that no step between rounds needs: on the host, as Replica::outer_folder says,
  /// or on that device.
  at::Tensor outer_zeros(int64_t size, at::Device device = at::kCPU) const;
  /// The same, for as long as this lives: what of them is spilled rests after each round.
  at::Tensor lasting(int64_t size, at::Device device = at::kCPU);
  /// Makes `copy_P` what `outer_P`, on outer_device(), is, near the live parameters: the tensor
  /// itself where it is near already, else a copy; one that is there already is written.
  void bring(const at::Tensor& outer_P, at::Tensor& copy_P) const;
  /// Whether the options' codec leaves values out.
  bool leaves_out() const { return !codec_->is_dense(); }
  /// Whether no value is infinite, NaN or too large for the options' codec.
  bool can_send(const at::Tensor& values) const;
  /// The weight of a round's `values`, behind which `tokens` stand: 0 if this replica abstains, or
  /// did when it first sent them, or cannot send them.
  int64_t weight(const OwnRound& own, const at::Tensor& values, int64_t tokens);
  /// Starts a round, with the options' codec unless it names one, and the method's topology. It is
  /// about `values`, contiguous FP32, which must stay unchanged until wait() has returned; those on
  /// a device are encoded there. They begin with the `ranges` of P, one behind the other; ranges
  /// are the same for all rounds of a fragment. Empty: all of P.
  void begin(const OwnRound& own, const at::Tensor& values, collective::Contribution contribution,
             std::span<const method::Range> ranges = {});
  /// Waits for the round's commit and books it; prepare() has run when it returns.
  Result<rounds::Taken> wait(int64_t round);

  Replica replica_;

 private:
  struct Sent {
    collective::Contribution contribution;  // For a round whose result comes from others.
    // The exchange thread writes these before the commit.
    std::vector<method::LayerSums> sums;
    double prepare_seconds = 0;
  };
  Result<void> perform(const rounds::Task& task);
  Result<void> perform_due(int64_t step);
  Result<void> perform(const rounds::Take& take);
  Result<void> perform(const rounds::Begin& begin);
  Result<void> perform(const rounds::Absorb& absorb);
  /// Blocks until the round is committed.
  Result<collective::Commit> commit_of(int64_t round);
  tl::unexpected<Failure> without_this_island(int64_t round) const;
  static tl::unexpected<Failure> another_state(int64_t round);
  Result<void> take_result(Sent& sent, const collective::Commit& commit);
  /// Takes the outer step of a round that this replica has not begun.
  Result<void> take_in(const collective::Commit& commit, const collective::CommittedRound& record);
  std::shared_ptr<const Bytes> export_state(int64_t fragment, int64_t round) const;
  void note(const collective::Commit& commit);
  /// Of what is spilled nothing stays in memory. Who reads it on another thread meanwhile gets it
  /// back from the system.
  void rest() const;
  bool is_on_device(const at::Tensor& values) const;
  Result<void> timed(int64_t step, Result<void> (Strategy::*act)(int64_t));

  collective::Averager& averager_;
  const Clock& clock_;
  const method::Method& method_;
  std::unique_ptr<codec::Codec> codec_;
  collective::Topology topology_;
  bool keeps_outer_near_;
  bool measures_layers_;
  rounds::Rounds rounds_;         // What newcomers read of it changes under state_mutex_.
  std::map<int64_t, Sent> sent_;  // By round.
  std::map<int32_t, std::vector<method::LayerSlice>> slices_;  // By fragment.
  SyncStats stats_;
  int64_t num_changes_ = 0;
  int64_t step_ = 0;
  std::vector<RoundRecord> records_;
  std::vector<at::Tensor> spilled_;  // Those of lasting().
  double unbooked_stall_ = 0;        // Of rounds that are still on their way.
  mutable std::mutex state_mutex_;
};

/// Of tensors that are there in pieces, one behind the other: what members compare before a round
/// is committed.
Digest state_digest(const std::vector<std::vector<at::Tensor>>& tensors);

/// Throws UsageError when the method does not fit the number of members.
std::unique_ptr<Strategy> make_strategy(const method::SyncOptions& options, Replica replica,
                                        collective::Averager& averager, const Clock& clock);

}  // namespace atl::sync
