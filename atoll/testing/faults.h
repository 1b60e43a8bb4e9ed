#pragma once
// For tests: what goes wrong in a simulated run, from a seed: which faults, where, when, for how
// long. Each is repaired in time; after the last repair everybody must reach the end.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "atoll/testing/simulated_world.h"

namespace atl::collective {

/// Sizes, speeds and a method's ways.
inline Plan draw_plan(Draws& draw) {
  Plan plan;
  plan.num_islands = 1 + static_cast<int>(draw(5));
  plan.min_replicas = 1 + static_cast<int>(draw(3) == 0 ? draw(plan.num_islands) : 0);
  plan.num_rounds = 20 + static_cast<int64_t>(draw(60));
  plan.count = draw(16) == 0 ? 1 + draw(40'000) : 1 + draw(600);
  plan.in_flight = 1 + static_cast<int>(draw(3));
  plan.checkpoint_every = 1 + static_cast<int64_t>(draw(4));
  plan.codec = std::array{"fp32", "bf16", "e3m0", "int4"}[draw(4)];
  plan.topology = draw(2) == 0 ? Topology::kScatter : Topology::kGather;
  plan.has_residual = plan.topology == Topology::kScatter && draw(2) == 0;
  plan.abstain_one_in = draw(4) == 0 ? 2 + draw(3) : 0;
  plan.poison_one_in = draw(3) == 0 ? 2 + draw(12) : 0;
  plan.unit_time = draw.milliseconds(0, draw(2) == 0 ? 0 : 20);
  plan.prepare_time = draw.milliseconds(0, draw(2) == 0 ? 0 : 500);
  plan.step_time = draw.milliseconds(10, 500);
  plan.steps_ahead = 1 + static_cast<int64_t>(draw(8));
  plan.silence_timeout = std::chrono::seconds(5 + draw(20));
  plan.return_patience = std::chrono::seconds(draw(2) == 0 ? 20 : 600);
  plan.removal_timeout = std::chrono::seconds(draw(2) == 0 ? 15 : 600);
  plan.fixed_ports = draw(2) == 0;
  if (draw(3) == 0) plan.elastic_steps = 1 + static_cast<int64_t>(draw(5));
  return plan;
}

inline sim::LinkOptions draw_link(Draws& draw) {
  return {.latency = draw.milliseconds(0, 80),
          .jitter = draw.milliseconds(0, 40),
          .bits_per_second = draw(2) == 0 ? 0.0 : 2e6 + static_cast<double>(draw(50)) * 1e6};
}

class Faults {
 public:
  Faults(World& world, Draws& draw) : world_(world), draw_(draw) {}

  /// So many in the first `span`. Call once all machines are there.
  void plan(uint64_t num, Duration span) {
    damages_ = draw_(4) == 0;
    const auto most = static_cast<uint64_t>(span / std::chrono::milliseconds(1));
    for (uint64_t i = 0; i < num; ++i) {
      const Duration when = draw_.milliseconds(0, most);
      const uint64_t kind = draw_(kNumKinds);
      at(when, [this, kind] { begin(kind); });
    }
    at(span, [] {});
  }
  /// Whether frames are damaged: else nobody breaks the protocol.
  bool damages() const { return damages_; }
  /// When the last is repaired, as far as it has begun.
  Time over() const { return over_; }

 private:
  static constexpr uint64_t kNumKinds = 20;
  static constexpr uint64_t kCoordinatorDies = 2;  // It knows afterwards what it knew.

  void at(Duration delay, std::function<void()> action) {
    over_ = std::max(over_, world_.now() + delay);
    world_.network.queue().after(delay, std::move(action));
  }
  Machine& pick() { return *world_.machines[draw_(world_.machines.size())]; }
  std::string pick_host() { return draw_(3) == 0 ? "coordinator" : pick().name; }
  Duration outage() {  // Short ones more often.
    return draw_.milliseconds(0, std::array{1'000, 5'000, 20'000, 60'000}[draw_(4)]);
  }

  void begin(uint64_t kind) {
    if (world_.result()) return;
    if (kind != kCoordinatorDies) world_.invariants.judge_outliers(false);
    const Duration time = outage();
    Machine& machine = pick();
    switch (kind) {
      case 0:
      case 1:
        return kill(machine, time);
      case kCoordinatorDies:
        return kill_coordinator(time);
      case 3:
        world_.die_writing(draw_(6), draw_(2) == 0);
        return watch_coordinator(time);
      case 4:
        if (draw_(4) == 0) lose_disk(time);
        return;
      case 5:
      case 6:
        return stop(machine, time);
      case 7:
        return stop_coordinator(time);
      case 8:
      case 9:
      case 10:
        return cut(time, kind);
      case 11:
        return slow(time);
      case 12:
        if (damages_) garble(machine.name);
        return;
      case 13:
        return join();
      case 14:
        if (draw_(3) == 0 && machine.life != nullptr && world_.plan.min_replicas == 1) {
          world_.note("-- " + machine.name + " is asked to leave");
          machine.life->leave();
        }
        return;
      case 15:
        if (draw_(8) == 0 && machine.life != nullptr && machine.life->start) {
          world_.note("-- " + machine.name + " asks all to stop");
          machine.life->engine().request_stop();
        }
        return;
      case 16:
      case 17:
        return spoil(machine.name, time);
      case 18:
      case 19:
        return part(time + std::chrono::seconds(10));
      default:
        return;
    }
  }

  void kill(Machine& machine, Duration time) {
    if (!machine.wanted || machine.done()) return;
    world_.kill(machine);
    at(time, [this, &machine] {
      if (!machine.wanted) world_.start(machine);
    });
  }
  void kill_coordinator(Duration time) {
    if (!world_.coordinator_is_up()) return;
    world_.kill_coordinator();
    at(time, [this] { revive(); });
  }
  void revive() {
    if (!world_.coordinator_is_up() && !world_.result()) {
      world_.note("-- the coordinator is started again");
      world_.start_coordinator();
    }
  }
  /// It dies some time later, if it writes so much.
  void watch_coordinator(Duration time) {
    at(time + std::chrono::seconds(5), [this] {
      world_.die_writing(kNever, false);
      revive();
    });
  }
  void lose_disk(Duration time) {
    if (!world_.coordinator_is_up()) return;
    world_.kill_coordinator();
    world_.lose_journal();
    at(time, [this] { revive(); });
  }
  void stop(Machine& machine, Duration time) {
    Life* const life = machine.life.get();
    if (life == nullptr) return;
    world_.note(fmt::format("-- {} is stopped for {:.1f} s", machine.name, seconds(time)));
    life->process().stop();
    at(time, [&machine, life] {
      if (machine.life.get() == life) life->process().go_on();
    });
  }
  void stop_coordinator(Duration time) {
    if (!world_.coordinator_is_up()) return;
    world_.note(fmt::format("-- the coordinator is stopped for {:.1f} s", seconds(time)));
    world_.coordinator_process().stop();
    at(time, [this] {
      if (world_.coordinator_is_up()) world_.coordinator_process().go_on();
    });
  }
  void cut(Duration time, uint64_t kind) {
    const std::string a = pick().name;
    const std::string b = pick_host();
    if (a == b) return;
    auto& network = world_.network;
    if (kind == 10) {
      world_.note(fmt::format("-- connections of {} and {} break", a, b));
      return network.break_connections(a, b);
    }
    world_.note(fmt::format("-- {} and {} are cut{} for {:.1f} s", a, b,
                            kind == 8 ? "" : " one way", seconds(time)));
    kind == 8 ? network.cut(a, b) : network.cut_one_way(a, b);
    at(time, [&network, a, b] { network.heal(a, b); });
    if (kind == 8 && draw_(2) == 0) {  // A part of the network, with what is in it.
      const std::string c = pick().name;
      if (c == a || c == b) return;
      network.cut(c, b);
      at(time, [&network, c, b] { network.heal(c, b); });
    }
  }
  /// Two islands lose their connections and can make none: long enough for them to meet elsewhere.
  void part(Duration time) {
    const std::string a = pick().name;
    const std::string b = pick().name;
    if (a == b) return;
    auto& network = world_.network;
    world_.note(fmt::format("-- {} and {} are parted for {:.1f} s", a, b, seconds(time)));
    network.break_connections(a, b);
    network.cut(a, b);
    at(time, [&network, a, b] { network.heal(a, b); });
  }
  void slow(Duration time) {
    const std::string a = pick().name;
    const std::string b = pick_host();
    if (a == b) return;
    auto& network = world_.network;
    world_.note(fmt::format("-- {} and {} are slow for {:.1f} s", a, b, seconds(time)));
    network.set_link(a, b, {.latency = std::chrono::milliseconds(400), .bits_per_second = 100e3});
    at(time,
       [&network, a, b] { network.set_link(a, b, {.latency = std::chrono::milliseconds(20)}); });
  }
  /// A frame of this island is no message.
  void garble(const std::string& name) {
    world_.note("-- a frame of " + name + " is damaged");
    const uint64_t how = draw_(3);
    world_.network.set_tamper(
        [this, name, how](const std::string& from, const std::string&, Bytes& frame) {
          if (from != name || frame.size() < 8) return;
          if (how == 0) frame.assign(100, std::byte{0x5A});
          if (how == 1) frame.resize(frame.size() / 2);
          if (how == 2) frame[4] = std::byte{99};
          world_.network.queue().after({}, [this] { world_.network.set_tamper({}); });
        });
  }
  /// A contribution of this island comes as no number to one of the others.
  void spoil(const std::string& name, Duration time) {
    if (world_.plan.codec != "fp32" && world_.plan.codec != "bf16") return;
    world_.note("-- a contribution of " + name + " comes as no number");
    world_.network.set_tamper(
        [this, name](const std::string& from, const std::string&, Bytes& frame) {
          if (from != name || !is_contribution(frame)) return;
          std::fill(frame.end() - 4, frame.end(), std::byte{0xFF});
          world_.network.queue().after({}, [this] { world_.network.set_tamper({}); });
        });
    at(time + std::chrono::seconds(5), [this] { world_.network.set_tamper({}); });
  }
  void join() {
    if (world_.machines.size() >= 8) return;
    const std::string name = fmt::format("late-{}", world_.machines.size());
    world_.note("-- " + name + " comes");
    world_.add(name);
  }

  static constexpr uint64_t kNever = uint64_t{1} << 60;
  World& world_;
  Draws& draw_;
  Time over_{};
  bool damages_ = false;
};

}  // namespace atl::collective
