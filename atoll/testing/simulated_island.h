#pragma once
// For tests: an island of a simulated run. It acts as the upper half does: trains on leased units,
// begins rounds, takes outer steps, applies commits it had a part in or has missed, fetches and
// gives state, checkpoints, and joins again when its membership ended. Life is one process of it;
// what outlives a process is its Disk.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/collective/engine.h"
#include "atoll/sim/sim_transport.h"
#include "atoll/swarm/wire.h"
#include "atoll/testing/simulated_plan.h"

namespace atl::collective {

/// Checkpoints: the fragments' values after a step.
using Disk = std::map<int64_t, std::vector<Theta>>;

inline Digest digest_of(const std::vector<Theta>& fragments) {
  Bytes all;
  for (const Theta& theta : fragments) {
    const Digest digest = digest_of(theta);
    all.insert(all.end(), digest.begin(), digest.end());
  }
  return sha256(all);
}

class Life final : public EngineListener {
 public:
  struct Setup {
    sim::SimNetwork& network;
    uint64_t seed;
    std::string name;
    const Plan& plan;
    const codec::Codec& codec;
    Ledger& ledger;
    Disk& disk;
    Skew skew;
    std::map<std::string, std::string> settings;
    std::map<std::string, std::string> facts;
  };

  explicit Life(Setup setup)
      : in_(std::move(setup)),
        process_(in_.network.queue()),
        transport_(in_.network.make_transport(in_.name, [this](net::Event event) {
          process_.soon([this, event = std::move(event)] {
            look_for_start(event);
            if (std::getenv("ATOLL_SIM_TRACE") != nullptr) trace(event);
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
  void leave() {
    if (ended() || leaving_ || !start) return;
    leaving_ = true;
    engine_->leave();
  }
  void kill() {
    process_.die();
    in_.network.crash(in_.name);
  }

  void welcomed(const std::string&, const std::string&) override {
    process_.soon([this] {
      std::map<int64_t, std::string> checkpoints;
      for (const auto& [step, fragments] : in_.disk) checkpoints[step] = hex(digest_of(fragments));
      engine_->ready({.facts = in_.facts,
                      .checkpoints = checkpoints,
                      .silence_timeout = in_.plan.silence_timeout});
    });
  }
  void started(const StartInfo& info) override {
    start = info;
    process_.soon([this] { begin_training(); });
  }
  void leased(const std::vector<swarm::Units>& list) override {
    for (const swarm::Units& units : list) {
      for (int64_t i = 0; i < units.count; ++i) units_.push_back(units.at(i));
    }
  }
  void called(const DueRound& due) override { due_ = due; }
  void reinstated(int64_t /*step*/) override {}
  void fetched(int32_t fragment, Result<FetchedState> state) override {
    process_.soon([this, fragment, state] { take_state(fragment, state); });
  }
  void committed(const Commit& commit, bool begun) override {
    process_.soon([this, commit, begun] { take_commit(commit, begun); });
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
    if (failed_) in_.ledger.violated("engine", in_.name + " failed twice");
    failed_ = true;
    failure = reason;
    ending = how;
    if (job_) std::exchange(job_, nullptr)();  // As a thread that cannot be stopped.
    flights_.clear();  // As a caller may once wait() has failed: the engine must not touch them.
  }

 private:
  struct Flight {  // A round that was begun.
    int64_t num_trained = 0;
    Theta values;
    Theta residual;
    Theta new_residual;
    Theta next;  // What prepare() made.
  };
  struct Fragment {
    int64_t round = -1;  // Of its values.
    int64_t step = 0;    // Of the run, then.
    Theta theta;
    Theta residual;
    int64_t counted = 0;  // Units that its commits have counted.
    bool is_here = false;
  };

  Time now() const { return in_.skew.at(in_.network.queue().now()); }
  int64_t period() const { return in_.plan.in_flight; }
  bool is_elastic() const { return in_.plan.elastic_steps > 0; }
  /// In elastic pace some are slower than others.
  Duration step_time() const {
    return in_.plan.step_time * (is_elastic() ? 1 + in_.name.back() % 3 : 1);
  }

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

  /// For a person who looks for a mistake: what this island hears.
  void trace(const net::Event& event) const {
    std::string what;
    if (const auto* received = std::get_if<net::Received>(&event)) {
      try {
        const swarm::Message message = swarm::decode(received->frame);
        const swarm::Header header = std::visit([](const auto& m) { return m.header; }, message);
        what = fmt::format("{} of term {}, round {}, attempt {}", swarm::kind_name(message),
                           header.term, header.round, header.attempt);
        if (what.starts_with("Alive")) return;
      } catch (const InputError& error) {
        what = error.what();
      }
      what += fmt::format(" over {}", received->connection);
    } else if (const auto* opened = std::get_if<net::Opened>(&event)) {
      what = fmt::format("opened {} ({})", opened->connection, opened->inbound ? "in" : "out");
    } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
      what = fmt::format("lost {}: {}", lost->connection, lost->reason);
    }
    fmt::print("{:.3f} {} heard {}\n", seconds(in_.network.queue().now() - Time{}), in_.name, what);
  }

  /// The membership that the next Start is about, as the ledger knows it.
  void look_for_start(const net::Event& event) {
    const auto* received = std::get_if<net::Received>(&event);
    if (received == nullptr || received->frame.size() < 8) return;
    try {
      const swarm::Message message = swarm::decode(received->frame);
      if (const auto* begins = std::get_if<swarm::Start>(&message)) {
        epoch_ = in_.ledger.epoch_of(begins->header.term, begins->number);
        held_ = begins->held;
      }
      const auto* welcome = std::get_if<swarm::Welcome>(&message);
      const auto* resumed = std::get_if<swarm::Resumed>(&message);
      if (welcome == nullptr && resumed == nullptr) return;
      const uint64_t term = welcome != nullptr ? welcome->header.term : resumed->header.term;
      in_.ledger.heard(in_.name, std::exchange(term_, term), term);
    } catch (const InputError&) {  // The engine sees to it.
    }
  }

  void begin_training() {
    if (ended()) return;
    fragments_.resize(static_cast<size_t>(period()));
    for (Fragment& fragment : fragments_) {
      if (in_.plan.has_residual) fragment.residual.assign(in_.plan.count, 0.0F);
    }
    if (start->joins) return fetch_next();
    for (size_t f = 0; f < fragments_.size(); ++f) {
      fragments_[f].theta = in_.disk.at(start->start_step)[f];
      fragments_[f].step = start->start_step;
      if (!is_elastic()) {
        fragments_[f].round = start->start_step - period() + static_cast<int64_t>(f);
      }
      fragments_[f].is_here = true;
      in_.ledger.started(epoch_, static_cast<int32_t>(f), fragments_[f].theta);
    }
    train();
  }

  // Joining: one fragment after the other.

  void fetch_next() {
    if (ended()) return;
    for (size_t f = 0; f < fragments_.size(); ++f) {
      if (fragments_[f].is_here) continue;
      return engine_->fetch_state(static_cast<int32_t>(f), in_.plan.count * sizeof(float),
                                  in_.network.queue().now());
    }
    train();
  }
  void take_state(int32_t f, const Result<FetchedState>& state) {
    if (ended()) return;
    if (!state) return give_up(state.error().message);
    Fragment& fragment = fragments_[static_cast<size_t>(f)];
    fragment.theta.resize(in_.plan.count);
    std::memcpy(fragment.theta.data(), state->bytes.data(), state->bytes.size());
    fragment.round = state->round;
    fragment.step = state->step;
    fragment.is_here = true;
    const auto known = std::ranges::find(held_, f, &swarm::Held::fragment);
    const bool looks = in_.plan.bug != Bug::kServesOldState;
    if (looks && digest_of(fragment.theta) != state->digest) {
      return give_up("the state that was fetched is damaged");
    }
    in_.ledger.fetched(epoch_, f, state->round, fragment.theta, known->round);
    fetch_next();
  }
  std::shared_ptr<const Bytes> state_of(int32_t f, int64_t round) {
    if (std::cmp_greater_equal(f, fragments_.size()) || f < 0) return nullptr;
    const Fragment& fragment = fragments_[static_cast<size_t>(f)];
    if (!fragment.is_here || fragment.round != round) return nullptr;
    const bool is_old = in_.plan.bug == Bug::kServesOldState && !old_theta_.empty();
    const auto bytes = std::as_bytes(std::span(is_old ? old_theta_ : fragment.theta));
    return std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  }
  void give_up(const std::string& why) { engine_->trouble(why, now()); }

  // Training: a step, then the next fragment's round, if nothing holds it up.

  bool all_here() const {
    return !fragments_.empty() && std::ranges::all_of(fragments_, &Fragment::is_here);
  }
  /// Elastic: where the run stands.
  int64_t run_step() const {
    return std::ranges::max_element(fragments_, {}, &Fragment::step)->step;
  }
  /// A newcomer at the end of the run: fragments that it has fetched before lack rounds.
  bool has_last_rounds() const {
    const auto [oldest, newest] = std::ranges::minmax(fragments_, {}, &Fragment::round);
    return !start->joins || oldest.round > newest.round - period();
  }
  /// The next round that may begin.
  std::optional<int64_t> due() const {
    if (is_elastic()) {
      const auto is_applied = [&](int64_t round) {
        return round < 0 || fragments_[static_cast<size_t>(round % period())].round >= round;
      };
      const bool is_new =
          due_ && !is_applied(due_->round) && flights_.empty() && is_applied(due_->base);
      return is_new ? std::optional(due_->round) : std::nullopt;
    }
    std::optional<int64_t> next;
    for (const Fragment& fragment : fragments_) {
      const int64_t round = fragment.round + period();
      if (flights_.contains(round) || round >= in_.plan.num_rounds) continue;
      if (!next || round < *next) next = round;
    }
    return next;
  }
  void train() {
    if (ended() || training_ || !all_here() || leaving_) return;
    while (!missed_.empty()) {
      const Commit commit = std::move(missed_.front());
      missed_.pop_front();
      apply_missed(commit);
    }
    const bool sits = in_.plan.bug == Bug::kSitsStill && start->joins;
    const bool complete = is_elastic() ? run_step() >= in_.plan.num_rounds && has_last_rounds()
                                       : std::ranges::all_of(fragments_, [&](const Fragment& own) {
                                           return own.round + period() >= in_.plan.num_rounds;
                                         });
    if (complete || (stop_ && flights_.empty())) {
      leaving_ = true;
      return process_.soon(
          [this] {
            leaving_ = false;
            leave();
          },
          in_.plan.step_time * (1 + in_.name.back() % 3));
    }
    if (stop_ || sits || (!is_elastic() && !due())) return;
    training_ = true;
    process_.soon([this] { step(); }, step_time());
  }
  void step() {
    training_ = false;
    if (ended() || leaving_) return;
    if (!is_elastic() && !due()) return train();
    if (units_.empty()) {  // next_unit() waits.
      training_ = true;
      return process_.soon(
          [this] {
            training_ = false;
            if (is_elastic() && (stop_ || leaving_)) return train();
            step();
          },
          kTick);
    }
    in_.ledger.trained(epoch_, start->number, units_.front());
    const bool again =
        in_.plan.bug == Bug::kTrainsTwice && units_.size() > 1 && num_trained_ % 5 == 0;
    if (again) units_[1] = units_[0];
    units_.pop_front();
    num_trained_ += 1;
    engine_->report({.step = num_trained_, .num_trained = num_trained_});
    if (const auto round = due()) begin(*round);
    train();
  }
  void begin(int64_t round) {
    const auto f = static_cast<size_t>(round % period());
    Fragment& fragment = fragments_[f];
    Flight& flight = flights_[round];
    flight.num_trained = num_trained_;
    flight.values = values_of(in_.seed, round + 1000 * start->number, in_.name, in_.plan.count);
    const bool abstaining = abstains(in_.plan, in_.seed, round, in_.name);
    if (abstaining) std::ranges::fill(flight.values, NAN);
    if (is_outlier(in_.plan, in_.seed, round, in_.name) || std::exchange(swell, false)) {
      for (float& value : flight.values) value *= 1e6F;
    }
    if (std::exchange(poison, false)) flight.values.back() = NAN;
    flight.residual = fragment.residual;
    flight.new_residual.assign(fragment.residual.size(), 55.0F);
    const int64_t weight = abstaining ? 0 : num_trained_ - fragment.counted;
    in_.ledger.begun(epoch_, round, start->number,
                     {flight.values, flight.residual, weight, num_trained_});
    engine_->begin(
        {.round = round,
         .fragment = static_cast<int32_t>(f),
         .step = is_elastic() ? due_->step : round + 1,
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
      in_.ledger.applied(epoch_, round, next, in_.name);
    }
    flight->second.next = std::move(next);
    return digest;
  }

  // Commits.

  void take_commit(const Commit& commit, bool begun) {
    if (ended()) return;
    stop_ = stop_ || commit.stop;
    if (!begun) {
      missed_.push_back(commit);  // Until the training thread asks.
    } else if (commit.missed) {
      apply_missed(commit);
    } else {
      apply(commit, std::move(flights_.at(commit.round).next));
    }
    train();
  }
  void apply_missed(const Commit& commit) {
    Fragment& fragment = fragments_[static_cast<size_t>(commit.fragment)];
    if (commit.round <= fragment.round) return;  // The state that was fetched has it.
    Theta mean(commit.record->count);
    if (auto decoded = decode_mean(*commit.record, in_.codec, mean); !decoded) {
      return give_up(decoded.error().message);
    }
    Theta next = fragment.theta;
    for (size_t i = 0; i < next.size(); ++i) next[i] += mean[i];
    if (digest_of(next) != commit.digest) return give_up("a result that was missed is damaged");
    apply(commit, std::move(next));
  }
  void apply(const Commit& commit, Theta next) {
    Fragment& fragment = fragments_[static_cast<size_t>(commit.fragment)];
    old_theta_ = std::exchange(fragment.theta, std::move(next));
    fragment.round = commit.round;
    const int64_t step_before = run_step();
    fragment.step = commit.step;
    applied.push_back(commit.round);
    in_.ledger.applied(epoch_, commit.round, fragment.theta, in_.name);
    if (const auto flight = flights_.find(commit.round); flight != flights_.end()) {
      const bool swaps = commit.included || in_.plan.bug == Bug::kSwapsResidualEarly;
      if (commit.included) fragment.counted = flight->second.num_trained;
      if (commit.included) contributed.push_back(commit.round);
      if (commit.left_out) num_left_out += 1;
      if (swaps && in_.plan.has_residual) fragment.residual = flight->second.new_residual;
      in_.ledger.kept_residual(epoch_, commit.round, start->number, commit.included,
                               fragment.residual);
      flights_.erase(flight);
    }
    is_elastic() ? checkpoint_between(step_before, commit.step) : checkpoint(commit);
  }
  void checkpoint_between(int64_t before, int64_t step) {
    if (before / in_.plan.checkpoint_every == step / in_.plan.checkpoint_every) return;
    std::vector<Theta> all;
    for (const Fragment& fragment : fragments_) all.push_back(fragment.theta);
    keep(step, std::move(all));
  }
  void keep(int64_t step, std::vector<Theta> all) {
    in_.disk[step] = std::move(all);
    while (in_.disk.size() > 4) in_.disk.erase(std::next(in_.disk.begin()));
  }
  /// A period's fragments, as each came to its end.
  void checkpoint(const Commit& commit) {
    const int64_t end = (commit.round / period() + 1) * period();
    auto& fragments = checkpoints_[end];
    fragments[commit.fragment] = fragments_[static_cast<size_t>(commit.fragment)].theta;
    if (std::ssize(fragments) < period()) return;
    if (end / period() % in_.plan.checkpoint_every == 0) {
      std::vector<Theta> all;
      for (auto& [f, theta] : fragments) all.push_back(std::move(theta));
      keep(end, std::move(all));
    }
    checkpoints_.erase(checkpoints_.begin(), std::next(checkpoints_.find(end)));
  }

  Setup in_;
  ProcessQueue process_;
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<Engine> engine_;
  std::vector<Fragment> fragments_;
  std::map<int64_t, Flight> flights_;  // By round.
  std::deque<Commit> missed_;
  std::deque<int64_t> units_;
  std::vector<swarm::Held> held_;
  std::map<int64_t, std::map<int32_t, Theta>> checkpoints_;  // That are not complete, by step.
  Theta old_theta_;
  std::optional<DueRound> due_;
  int64_t num_trained_ = 0;
  Ledger::Epoch epoch_ = -1;
  uint64_t term_ = 0;
  bool stop_ = false;
  bool leaving_ = false;
  bool training_ = false;
  bool working_ = false;  // A unit, whose time is not over.
  bool failed_ = false;
  PrepareJob job_;  // Handed out and not done.
};

}  // namespace atl::collective
