#pragma once
// For tests: an island of a simulated run. It acts as the upper half does: trains on leased units,
// does what the real rounds::Rounds says with numbers instead of tensors, fetches and gives state,
// checkpoints, and joins again when its membership ended. Life is one process of it; what outlives
// a process is its Disk.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/collective/engine.h"
#include "atoll/collective/mailbox.h"
#include "atoll/rounds/rounds.h"
#include "atoll/sim/sim_transport.h"
#include "atoll/testing/simulated_disk.h"
#include "atoll/testing/simulated_hearing.h"
#include "atoll/testing/simulated_plan.h"
#include "atoll/testing/simulated_state.h"

namespace atl::collective {

class Life final : public EngineListener {
 public:
  explicit Life(LifeSetup setup)
      : in_(std::move(setup)),
        process_(in_.network.queue()),
        transport_(in_.network.make_transport(in_.name, [this](net::Event event) {
          process_.soon([this, event = std::move(event)] {
            heard_.hear(event, in_.name, in_.invariants);
            if (std::getenv("ATOLL_SIM_TRACE") != nullptr) {
              trace_heard(event, in_.name, in_.network.queue().now());
            }
            engine_->handle(event, now());
            work();
          });
        })) {
    const auto address = transport_->listen(in_.plan.fixed_ports ? "any:9" : "any:0");
    engine_ = std::make_unique<Engine>(SessionOptions{.coordinator = "coordinator:7",
                                                      .name = in_.name,
                                                      .settings = in_.settings,
                                                      .connect_patience = connect_patience,
                                                      .silence_timeout = in_.plan.silence_timeout,
                                                      .return_patience = in_.plan.return_patience,
                                                      .result_log_bytes = 1 << 20},
                                       address.value(), *transport_, *this);
    engine_->serve_state([this](int32_t f, int64_t round) { return state_of(f, round); });
    engine_->connect(now());
    tick();
  }

  // What became of it.
  bool ended() const { return done || failed_; }
  bool done = false;
  std::string failure;
  swarm::Ending ending = swarm::Ending::kFailure;
  std::optional<StartInfo> start;
  std::vector<int64_t> applied;      // Rounds, in that order.
  std::vector<int64_t> contributed;  // Those that it had a part in.
  int num_left_out = 0;              // Of those, without its contribution.
  bool poison = false;               // Its next snapshot holds a NaN.
  bool swell = false;                // Its next snapshot is an outlier.
  bool forge = false;                // Its next digest is wrong.
  static constexpr Duration connect_patience = std::chrono::seconds(60);

  Engine& engine() { return *engine_; }
  ProcessQueue& process() { return process_; }
  /// When it may.
  void leave() {
    is_to_leave_ = true;
    if (rounds_) rounds_->leave_soon();
  }
  void kill() {
    process_.die();
    in_.network.crash(in_.name);
  }

  void welcomed(const std::string&, const std::string&) override {
    process_.soon([this] {
      std::map<int64_t, std::string> checkpoints;
      for (const auto& [step, checkpoint] : in_.disk)
        checkpoints[step] = hex(digest_of(checkpoint));
      engine_->ready({.facts = in_.facts,
                      .checkpoints = checkpoints,
                      .silence_timeout = in_.plan.silence_timeout});
    });
  }
  void started(const StartInfo& info) override {
    start = info;
    process_.soon([this] { begin_training(); });
  }
  void leased(const std::vector<swarm::Units>& units) override { mailbox_.leased(units); }
  void called(const DueRound& due) override { mailbox_.called(due); }
  void reinstated(int64_t step) override { mailbox_.reinstated(step); }
  void fetched(int32_t fragment, Result<FetchedState> state) override {
    process_.soon([this, fragment, state] { take_state(fragment, state); });
  }
  void committed(const Commit& commit, bool begun) override {
    process_.soon([this, commit, begun] {
      mailbox_.committed(commit, begun);
      go_on();
    });
  }
  void prepare(PrepareJob job) override {
    job_ = std::move(job);
    process_.soon([this] { finish_job(); }, in_.plan.prepare_time);
  }
  void copy(CopyJob job) override {
    process_.soon([this, job = std::move(job)] { engine_->copied(job(), now()); },
                  in_.plan.prepare_time);
  }
  void left() override { done = true; }
  void failed(const std::string& reason, swarm::Ending how) override {
    if (failed_) in_.invariants.violated("engine", in_.name + " failed twice");
    failed_ = true;
    failure = reason;
    ending = how;
    if (job_) std::exchange(job_, nullptr)();  // As a thread that cannot be stopped.
    flights_.clear();  // As a caller may once wait() has failed: the engine must not touch them.
  }

 private:
  Time now() const { return in_.skew.at(in_.network.queue().now()); }
  void tick() {
    engine_->tick(now());
    work();
    if (!ended()) process_.soon([this] { tick(); }, kTick);
  }
  /// One unit, and after the time it takes the next.
  void work() {
    if (working_ || ended()) return;
    working_ = engine_->work(now());
    if (!working_) return;
    process_.soon(
        [this] {
          working_ = false;
          work();
        },
        in_.plan.unit_time);
  }
  void finish_job() {
    if (!job_) return;
    const Result<Digest> digest = std::exchange(job_, nullptr)();
    engine_->prepared(digest, now());
    work();
  }

  void begin_training() {
    if (ended()) return;
    const Plan& plan = in_.plan;
    rounds_.emplace(rounds::Standing(plan.in_flight, /*names_states=*/true), plan.pace(),
                    plan.sync(), mailbox_);
    fragments_.resize(static_cast<size_t>(plan.in_flight));
    for (Fragment& fragment : fragments_) {
      if (plan.has_residual) fragment.residual.assign(plan.count, 0.0F);
    }
    step_ = start->start_step;
    if (start->joins) return fetch_next();
    const Checkpoint& checkpoint = in_.disk.at(step_);
    for (size_t f = 0; f < fragments_.size(); ++f) {
      fragments_[f].theta = checkpoint.theta[f];
      fragments_[f].is_here = true;
      in_.invariants.started(heard_.epoch, static_cast<int32_t>(f), fragments_[f].theta);
    }
    rounds_->restore({}, checkpoint.applied);
    for (const rounds::OwnRound& own : rounds_->resumed(step_)) begin(own);
    if (is_to_leave_) rounds_->leave_soon();  // What is sent again was begun before the wish.
    go_on();
  }

  // Joining: one fragment after the other.

  void fetch_next() {
    if (ended()) return;
    for (size_t f = 0; f < fragments_.size(); ++f) {
      if (fragments_[f].is_here) continue;
      return engine_->fetch_state(static_cast<int32_t>(f), in_.plan.count * sizeof(float),
                                  in_.network.queue().now());
    }
    step_ = std::min(step_, in_.plan.num_rounds - 1);
    rounds_->joined(step_, last_round_);
    if (is_to_leave_) rounds_->leave_soon();
    go_on();
  }
  void take_state(int32_t f, const Result<FetchedState>& state) {
    if (ended()) return;
    if (!state) return give_up(state.error().message);
    Fragment& fragment = fragments_[static_cast<size_t>(f)];
    fragment.theta.resize(in_.plan.count);
    std::memcpy(fragment.theta.data(), state->bytes.data(), state->bytes.size());
    fragment.is_here = true;
    rounds_->applied(f, state->round);
    rounds_->imported(f, state->digest);
    step_ = std::max(step_, state->step);
    if (state->step == in_.plan.num_rounds) last_round_ = state->round;
    const auto known = std::ranges::find(heard_.held, f, &swarm::Held::fragment);
    const bool looks = in_.plan.bug != Bug::kServesOldState;
    if (looks && digest_of(fragment.theta) != state->digest) {
      return give_up("the state that was fetched is damaged");
    }
    in_.invariants.fetched(heard_.epoch, f, state->round, fragment.theta, known->round);
    fetch_next();
  }
  std::shared_ptr<const Bytes> state_of(int32_t f, int64_t round) {
    if (std::cmp_greater_equal(f, fragments_.size()) || f < 0) return nullptr;
    const Fragment& fragment = fragments_[static_cast<size_t>(f)];
    if (!fragment.is_here || rounds_->standing().applied()[static_cast<size_t>(f)] != round)
      return nullptr;
    const bool is_old = in_.plan.bug == Bug::kServesOldState && !old_theta_.empty();
    const auto bytes = std::as_bytes(std::span(is_old ? old_theta_ : fragment.theta));
    return std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  }
  void give_up(const std::string& why) { engine_->trouble(why, now()); }

  // Training: what the rounds say is to be done after a step and before the next one.

  bool all_here() const {
    return !fragments_.empty() && std::ranges::all_of(fragments_, &Fragment::is_here);
  }
  void go_on() {
    if (ended() || training_ || leaving_ || !all_here()) return;
    if (!finish_step() || !catch_up() || ended()) return;
    const bool is_complete = step_ >= in_.plan.num_rounds;
    const bool ends =
        rounds_->standing().stops() || (is_to_leave_ && rounds_->may_leave(step_, /*lands=*/true));
    if (is_complete || (ends && drain())) {
      leaving_ = true;
      process_.soon([this] { engine_->leave(); }, in_.plan.step_time * (1 + in_.name.back() % 3));
      return;
    }
    const bool sits = in_.plan.bug == Bug::kSitsStill && start->joins;
    if (ends || sits) return;
    training_ = true;
    process_.soon([this] { step(); }, in_.plan.step_time_of(in_.name));
  }
  /// True once all that is to be done after the step is done.
  bool finish_step() {
    while (has_trained_) {
      const auto task = rounds_->next();
      if (!task) {
        give_up(task.error().message);
        return false;
      }
      if (!*task) break;
      if (!perform(**task)) return false;
    }
    if (rounds_->pace().is_kept(step_, has_synced_)) keep_checkpoint();
    has_synced_ = false;
    has_trained_ = false;
    return true;
  }
  /// True once all that was missed is absorbed.
  bool catch_up() {
    bool rests = true;
    while (rests) {
      while (const auto task = rounds_->next_missed()) {
        if (!perform(*task)) return false;
      }
      const rounds::CaughtUp caught_up = rounds_->caught_up(step_);
      step_ = caught_up.step;
      rests = caught_up.rests;
      if (rests) keep_checkpoint();
    }
    return true;
  }
  /// True once nothing is on its way: what is decided then is left unused.
  bool drain() {
    while (!rounds_->standing().open().empty()) {
      const int64_t round = rounds_->standing().open().begin()->first;
      if (!mailbox_.is_decided(round)) return false;
      mailbox_.take_commit(round);
      rounds_->drained(round);
    }
    return true;
  }
  void keep_checkpoint() {
    Checkpoint checkpoint{.applied = rounds_->standing().applied()};
    for (const Fragment& fragment : fragments_) checkpoint.theta.push_back(fragment.theta);
    keep(in_.disk, rounds_->pace().published_step(step_), std::move(checkpoint));
  }
  void step() {
    training_ = false;
    if (ended() || leaving_) return;
    const auto unit = take_unit();
    if (!unit) {  // Session::next_unit() waits.
      training_ = true;
      return process_.soon([this] { step(); }, kTick);
    }
    in_.invariants.trained(heard_.epoch, start->number, *unit);
    num_trained_ += 1;
    step_ = rounds_->step_after(step_);
    engine_->report({.step = step_, .num_trained = num_trained_});
    rounds_->trained(step_);
    has_trained_ = true;
    go_on();
  }
  std::optional<int64_t> take_unit() {
    const bool again = in_.plan.bug == Bug::kTrainsTwice && num_trained_ % 5 == 4;
    if (!again || !mailbox_.has_units()) last_unit_ = mailbox_.take_unit();
    return last_unit_;
  }
  bool perform(const rounds::Task& task) {
    return std::visit([this](const auto& kind) { return perform(kind); }, task);
  }
  bool perform(const rounds::Begin& due) {
    begin(due.own);
    return true;
  }
  /// False while the round is not decided.
  bool perform(const rounds::Take& own) {
    if (!mailbox_.is_decided(own.round)) return false;
    const Commit commit = mailbox_.take_commit(own.round);
    Theta next = std::move(flights_.at(own.round).next);
    if (commit.missed) {
      auto made = next_of(commit);
      if (!made) return false;
      next = *std::move(made);
    }
    rounds_->taken(commit);
    apply(commit, std::move(next));
    return true;
  }
  bool perform(const rounds::Absorb& missed) {
    const Commit& commit = missed.commit;
    if (!rounds_->is_missing(commit)) {  // The state that was fetched has it.
      rounds_->passed(commit);
      return true;
    }
    auto next = next_of(commit);
    if (!next) return false;
    rounds_->absorbed(commit);
    apply(commit, *std::move(next));
    return true;
  }
  void begin(const rounds::OwnRound& own) {
    const int64_t round = own.round;
    Fragment& fragment = fragments_[static_cast<size_t>(own.fragment)];
    Flight& flight = flights_[round];
    flight.values = values_of(in_.seed, round, start->number, in_.name, in_.plan.count);
    if (abstains(in_.plan, in_.seed, round, in_.name)) rounds_->abstain();
    const bool counts = rounds_->counts(round);
    if (!counts) std::ranges::fill(flight.values, NAN);
    const bool swells = std::exchange(swell, false);
    poison_values(flight.values,
                  swells ? Poison::kSwollen : poison_of(in_.plan, in_.seed, round, in_.name),
                  in_.seed, random_stream("poison") + static_cast<uint64_t>(round));
    if (std::exchange(poison, false)) flight.values.back() = NAN;
    flight.residual = fragment.residual;
    flight.new_residual.assign(fragment.residual.size(), 55.0F);
    const int64_t weight = counts ? own.num_steps : 0;
    in_.invariants.begun(heard_.epoch, round, start->number,
                         {flight.values, flight.residual, weight, num_trained_});
    rounds::OwnRound begun = own;
    begun.has_abstained = weight == 0;
    rounds_->begun(begun);
    mailbox_.note_begun(round);
    engine_->begin(
        {.round = round,
         .fragment = own.fragment,
         .step = own.step,
         .weight = weight,
         .num_trained = num_trained_,
         .values = flight.values,
         .codec = &in_.codec,
         .topology = in_.plan.topology,
         .mean_residual = flight.residual,
         .new_mean_residual = flight.new_residual,
         .needs_own = round % 2 == 0,
         .prepare = [this, round, &fragment](
                        std::span<const float> mean,
                        std::span<const float>) { return outer_step(round, fragment, mean); }},
        now());
    work();
  }
  Digest outer_step(int64_t round, Fragment& fragment, std::span<const float> mean) {
    Theta next = fragment.theta;
    for (size_t i = 0; i < next.size(); ++i) next[i] += mean[i];
    Digest digest = digest_of(next);
    if (std::exchange(forge, false)) digest[0] ^= std::byte{1};
    if (in_.plan.bug == Bug::kForgesDigest) next[0] += 1;
    const auto flight = flights_.find(round);
    if (flight == flights_.end()) return digest;
    if (in_.plan.bug == Bug::kAppliesBeforeCommit) {
      in_.invariants.applied(heard_.epoch, round, next, in_.name);
    }
    flight->second.next = std::move(next);
    return digest;
  }

  // Commits.

  /// What a round that was committed without this island makes of its fragment.
  std::optional<Theta> next_of(const Commit& commit) {
    Theta next = fragments_[static_cast<size_t>(commit.fragment)].theta;
    Theta mean(commit.record->count);
    if (auto decoded = decode_mean(*commit.record, in_.codec, mean); !decoded) {
      give_up(decoded.error().message);
      return std::nullopt;
    }
    for (size_t i = 0; i < next.size(); ++i) next[i] += mean[i];
    if (digest_of(next) == commit.digest) return next;
    give_up("a result that was missed is damaged");
    return std::nullopt;
  }
  void apply(const Commit& commit, Theta next) {
    Fragment& fragment = fragments_[static_cast<size_t>(commit.fragment)];
    old_theta_ = std::exchange(fragment.theta, std::move(next));
    rounds_->applied(commit.fragment, commit.round);
    has_synced_ = true;
    applied.push_back(commit.round);
    in_.invariants.applied(heard_.epoch, commit.round, fragment.theta, in_.name);
    const auto flight = flights_.find(commit.round);
    if (flight == flights_.end()) return;
    const bool swaps = commit.included || in_.plan.bug == Bug::kSwapsResidualEarly;
    if (commit.included) contributed.push_back(commit.round);
    if (commit.left_out) num_left_out += 1;
    if (swaps && in_.plan.has_residual) fragment.residual = flight->second.new_residual;
    in_.invariants.kept_residual(heard_.epoch, commit.round, start->number, commit.included,
                                 fragment.residual);
    flights_.erase(flight);
  }

  LifeSetup in_;
  ProcessQueue process_;
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<Engine> engine_;
  std::vector<Fragment> fragments_;
  Mailbox mailbox_;
  std::optional<rounds::Rounds> rounds_;
  std::map<int64_t, Flight> flights_;  // By round.
  Theta old_theta_;
  std::optional<int64_t> last_unit_;
  int64_t step_ = 0;  // Of the run.
  int64_t num_trained_ = 0;
  int64_t last_round_ = -1;  // Of the run, if a fetched state has it.
  Heard heard_;
  bool has_trained_ = false;  // What is to be done after the step is not done yet.
  bool has_synced_ = false;   // With the last step.
  bool is_to_leave_ = false;
  bool leaving_ = false;
  bool training_ = false;
  bool working_ = false;  // A unit, whose time is not over.
  bool failed_ = false;
  PrepareJob job_;  // Handed out and not done.
};

}  // namespace atl::collective
