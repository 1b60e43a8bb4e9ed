#pragma once
// For tests: a coordinator with its disk, the machines of the islands, and the network between
// them, in simulated time. Faults are done to it by faults.h and by the tests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/codec/codec.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/testing/simulated_island.h"

namespace atl::collective {

/// A machine on which an island runs; after an end that was none it is started again.
struct Machine {
  std::string name;
  Disk disk;
  Skew skew;
  std::optional<Plan> plan;  // Where it is another than the world's.
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> facts = {{"data", "d1"}};
  bool wanted = true;  // It is to run. False: killed, and not to be started yet.
  bool keeps_restarting = true;
  std::unique_ptr<Life> life;
  std::vector<std::unique_ptr<Life>> past;

  bool done() const { return life != nullptr && life->done; }
  bool ended() const { return life == nullptr ? !wanted : life->ended(); }
};

/// Whether a frame is a part of one; what is damaged is none.
inline bool is_contribution(const Bytes& frame) {
  try {
    const swarm::Message message = swarm::decode(frame);
    const auto* part = std::get_if<swarm::Part>(&message);
    return part != nullptr && part->kind == swarm::PartKind::kContribution;
  } catch (const InputError&) {
    return false;
  }
}

class World {
 public:
  World(uint64_t seed, Plan plan_in, sim::LinkOptions link = {})
      : plan(std::move(plan_in)),
        network({.seed = seed, .link = link}),
        codec(codec::make_codec(plan.codec)),
        invariants(*codec, plan.topology, plan.count),
        seed_(seed) {
    invariants.expect_rising_steps(plan.elastic_steps > 0);
  }
  ~World() {
    machines.clear();
    coordinator_.reset();
  }

  // The coordinator.

  /// Also after kill_coordinator(): with what its disk has.
  void start_coordinator() {
    coordinator_.reset();
    auto process = std::make_unique<Coordinating>(network.queue());
    Coordinating& made = *process;
    coordinator_ = std::move(process);
    made.transport = network.make_transport("coordinator", [this, &made](net::Event event) {
      made.process.soon([this, event = std::move(event)] {
        guard([&] { coordinator_->service->handle(event, coordinator_now()); });
      });
    });
    EXPECT_TRUE(made.transport->listen("any:7").has_value());
    num_terms_ += 1;
    swarm::CoordinatorOptions options{
        .run = "r1",
        .config = "steps = 3",
        .settings = {{"sync.codec", "\"bf16\""},
                     {"sync.method", "\"diloco\""},
                     {"sync.sync_every", "20"}},
        .replicas = plan.num_islands,
        .min_replicas = plan.min_replicas,
        .steps = plan.elastic_steps > 0 ? plan.num_rounds : 0,
        .num_fragments = plan.in_flight,
        .steps_ahead = plan.steps_ahead,
        .round_units = plan.elastic_steps * plan.num_islands,
        .outlier_factor = plan.bug == Bug::kCountsOutliers ? 0.0 : 10.0,
        .least_term = plan.bug == Bug::kTermFallsBack ? 1 : num_terms_,
        .silence_timeout = plan.silence_timeout,
        .removal_timeout = plan.removal_timeout};
    guard([&] {
      made.service = std::make_unique<swarm::CoordinatorService>(
          options, swarm::read_book(journal),
          swarm::CoordinatorCallbacks{
              .persist = [this](const swarm::Record& record) { persist(record); },
              .on_event = [this](const Event& event) { note(event.sentence); }},
          *made.transport, coordinator_now());
    });
    tick_coordinator();
  }
  void kill_coordinator() {
    if (coordinator_ == nullptr) return;
    note("-- the coordinator is killed");
    coordinator_->process.die();
    network.crash("coordinator");
    forget_what_was_kept();
  }
  bool coordinator_is_up() const {
    return coordinator_ != nullptr && !coordinator_->process.dead();
  }
  ProcessQueue& coordinator_process() { return coordinator_->process; }
  void lose_journal() {
    note("-- the coordinator's disk is lost");
    journal.clear();
    invariants.lost_disk();
  }
  /// The coordinator dies while it writes this many records from now; `whole`: just behind it.
  void die_writing(uint64_t in, bool whole) {
    dies_in_ = in + 1;
    dies_whole_ = whole;
  }
  swarm::CoordinatorService& service() { return *coordinator_->service; }
  /// The run came to its end, in the coordinator's view.
  const std::optional<Result<void>>& result() const { return result_; }

  // The islands.

  Machine& add(const std::string& name, std::map<std::string, std::string> settings = {},
               Skew skew = {}) {
    auto& machine = make(name);
    machine.settings = std::move(settings);
    machine.skew = skew;
    start(machine);
    return machine;
  }
  /// Not started yet.
  Machine& make(const std::string& name) {
    auto& machine = *machines.emplace_back(std::make_unique<Machine>());
    machine.name = name;
    const auto num_fragments = static_cast<size_t>(plan.in_flight);
    machine.disk[0] = {.theta = std::vector(num_fragments, Theta(plan.count, 0.25F)),
                       .applied = std::vector(num_fragments, int64_t{-1})};
    return machine;
  }
  void add_all() {
    for (int i = 0; i < plan.num_islands; ++i) add(fmt::format("island-{}", i));
  }
  void start(Machine& machine) {
    machine.wanted = true;
    if (machine.life != nullptr) machine.past.push_back(std::move(machine.life));
    const Plan& own = machine.plan ? *machine.plan : plan;
    machine.life = std::make_unique<Life>(LifeSetup{network, seed_, machine.name, own, *codec,
                                                    invariants, machine.disk, machine.skew,
                                                    machine.settings, machine.facts});
  }
  void kill(Machine& machine) {
    note("-- " + machine.name + " is killed");
    machine.wanted = false;
    if (machine.life == nullptr) return;
    machine.life->kill();
    machine.past.push_back(std::move(machine.life));
  }

  /// Islands whose membership ended join again, as new processes; others are started again.
  void supervise() {
    for (const auto& machine : machines) {
      Life* const life = machine->life.get();
      if (life == nullptr || life->failure.empty() || !machine->keeps_restarting) continue;
      if (result_) continue;
      note(fmt::format("-- {} begins anew: {}", machine->name, life->failure));
      life->kill();
      machine->past.push_back(std::move(machine->life));
      network.queue().after(std::chrono::milliseconds(500), [this, machine = machine.get()] {
        if (machine->wanted && machine->life == nullptr) start(*machine);
      });
    }
  }

  bool all_ended() const {
    return std::ranges::all_of(machines, [](const auto& machine) { return machine->ended(); });
  }
  /// Until all have ended, something is broken, or the patience is over; true if all have ended.
  bool run(Duration patience) {
    return run_until([this] { return all_ended(); }, patience);
  }
  bool run_until(const std::function<bool()>& done, Duration patience) {
    const auto stops = [&] {
      supervise();
      return invariants.broken() || done();
    };
    return network.queue().run_until(stops, patience) && !invariants.broken();
  }
  void run_for(Duration time) {
    run_until([] { return false; }, time);
  }
  Time now() { return network.queue().now(); }
  void note(const std::string& line) {
    log += fmt::format("{:.3f} {}\n", seconds(now() - Time{}), line);
  }
  /// For a failure's message.
  std::string describe() const {
    std::string out;
    for (const auto& machine : machines) {
      if (machine->life == nullptr) {
        out += machine->name + ": no process\n";
        continue;
      }
      const Life& life = *machine->life;
      out += fmt::format("{}: done {}, applied {} to round {}, '{}'\n", machine->name, life.done,
                         life.applied.size(), life.applied.empty() ? -1 : life.applied.back(),
                         life.failure);
    }
    return out + log;
  }

  const Plan plan;
  sim::SimNetwork network;
  const std::unique_ptr<codec::Codec> codec;
  Invariants invariants;
  std::vector<std::unique_ptr<Machine>> machines;
  std::string log;
  std::vector<Bytes> journal;  // What the coordinator's disk has.
  Skew coordinator_skew;

 private:
  struct Coordinating {
    explicit Coordinating(sim::EventQueue& queue) : process(queue) {}
    ProcessQueue process;
    std::unique_ptr<net::Transport> transport;
    std::unique_ptr<swarm::CoordinatorService> service;
  };
  struct Died {};

  Time coordinator_now() { return coordinator_skew.at(now()); }
  /// The process may die in the middle of what it does.
  void guard(const std::function<void()>& act) {
    try {
      act();
      const auto& service = coordinator_->service;
      if (service != nullptr && service->result()) result_ = *service->result();
    } catch (const Died&) {
      kill_coordinator();
    }
  }
  void tick_coordinator() {
    coordinator_->process.soon(
        [this] {
          guard([&] { coordinator_->service->tick(coordinator_now()); });
          if (!coordinator_->process.dead()) tick_coordinator();
        },
        kTick);
  }
  void persist(const swarm::Record& record) {
    if (dies_in_ > 0 && --dies_in_ == 0) {
      note("-- the coordinator dies while it writes");
      if (dies_whole_) keep(record);
      throw Died();
    }
    keep(record);
  }
  void keep(const swarm::Record& record) {
    invariants.persisted(record);
    journal.push_back(swarm::encode(record));
    if (journal.size() > 40) journal = {swarm::read_book(journal).contents()};
  }
  /// A disk that lies has not kept the last it was given when the power goes.
  void forget_what_was_kept() {
    const auto ends_with = [&](size_t kind) {
      return journal.size() > 1 && journal.back()[0] == static_cast<std::byte>(kind);
    };
    if (plan.bug != Bug::kForgetsCommits) return;
    while (ends_with(kGranted)) journal.pop_back();
    if (ends_with(swarm::kCommittedKind)) journal.pop_back();
  }

  static constexpr size_t kGranted = 4;  // Its place in swarm::Record.
  static_assert(
      std::is_same_v<std::variant_alternative_t<kGranted, swarm::Record>, swarm::Granted>);

  uint64_t seed_;
  std::unique_ptr<Coordinating> coordinator_;
  std::optional<Result<void>> result_;
  uint64_t num_terms_ = 0;
  uint64_t dies_in_ = 0;
  bool dies_whole_ = false;
};

}  // namespace atl::collective
