#pragma once
// For tests: what a simulated run is like, and what its islands contribute: all from a seed.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/random.h"
#include "atoll/collective/averager.h"
#include "atoll/method/sync_options.h"
#include "atoll/rounds/pace.h"
#include "atoll/sim/event_queue.h"
#include "atoll/testing/invariants.h"

namespace atl::collective {

constexpr Duration kTick = std::chrono::milliseconds(100);

/// What is wrong with an island's contribution, though it is sent as it must be.
enum class Poison : uint8_t {
  kNone,
  kSwollen,  // A million times as large.
  kGarbage,  // Noise, a hundred times as large.
  kFlipped,  // The other way.
  kNoise,    // As large as usual.
};

struct Plan {
  int num_islands = 2;  // That the run begins with.
  int min_replicas = 1;
  int64_t num_rounds = 6;        // Of all fragments together; elastic: steps of the run.
  int64_t elastic_steps = 0;     // Between two rounds, in elastic pace; 0: lockstep.
  int in_flight = 1;             // Fragments; each has at most one round open.
  int64_t checkpoint_every = 1;  // Periods.
  size_t count = 100;            // Values of each fragment.
  std::string codec = "fp32";
  Topology topology = Topology::kScatter;
  bool has_residual = false;
  uint64_t abstain_one_in = 0;    // Of the islands in each round; 0: none.
  uint64_t poison_one_in = 0;     // The same, whose values are poisoned in one way or another.
  Poison poison = Poison::kNone;  // Of all that this island contributes.
  Duration step_time = std::chrono::milliseconds(50);
  Duration unit_time{};     // That a unit of work takes.
  Duration prepare_time{};  // And an outer step.
  int64_t steps_ahead = 4;
  Duration silence_timeout = std::chrono::seconds(30);
  Duration return_patience = std::chrono::minutes(10);
  Duration removal_timeout = std::chrono::minutes(10);
  bool fixed_ports = false;  // An island that begins anew is at the address that it had.
  Bug bug = Bug::kNone;

  /// Fragment after fragment is sent, one each step, and may travel until just before its next
  /// turn.
  method::SyncOptions sync() const {
    return {.method = "streaming_diloco",
            .sync_every = in_flight,
            .num_fragments = in_flight,
            .fragment_sync_delay = in_flight - 1};
  }
  rounds::PaceOptions pace() const {
    return {.name = elastic_steps > 0 ? "elastic" : "lockstep",
            .last_step = num_rounds,
            .keep_every = checkpoint_every * in_flight};
  }
  /// In elastic pace some are slower than others.
  Duration step_time_of(const std::string& name) const {
    return step_time * (elastic_steps > 0 ? 1 + name.back() % 3 : 1);
  }
};

/// How far a process' clock is from the true one.
struct Skew {
  Duration offset{};
  double rate = 1;

  Time at(Time true_time) const {
    return Time{} + offset +
           Duration(static_cast<int64_t>(static_cast<double>((true_time - Time{}).count()) * rate));
  }
};

/// A process' events: none before the one in front is through, none while it is stopped, and none
/// once it is dead.
class ProcessQueue {
 public:
  explicit ProcessQueue(sim::EventQueue& queue) : queue_(queue) {}
  ~ProcessQueue() { *state_ = {.dead = true}; }
  ProcessQueue(const ProcessQueue&) = delete;
  ProcessQueue& operator=(const ProcessQueue&) = delete;

  void soon(std::function<void()> action, Duration delay = {}) {
    queue_.after(delay, [state = state_, action = std::move(action)]() mutable {
      if (state->dead) return;
      if (state->stopped) return state->waiting.push_back(std::move(action));
      action();
    });
  }
  void stop() { state_->stopped = true; }
  void go_on() {
    state_->stopped = false;
    for (auto& action : std::exchange(state_->waiting, {})) soon(std::move(action));
  }
  void die() { state_->dead = true; }
  bool dead() const { return state_->dead; }
  sim::EventQueue& queue() { return queue_; }

 private:
  struct State {
    bool dead = false;
    bool stopped = false;
    std::vector<std::function<void()>> waiting;
  };
  sim::EventQueue& queue_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// From -0.5 to 0.5.
inline Theta noise_of(uint64_t seed, uint64_t stream, size_t count) {
  Theta values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(random_uniform(seed, stream, i) - 0.5);
  }
  return values;
}

/// What an island contributes: one half of it is what all learn in that round.
inline Theta values_of(uint64_t seed, int64_t round, int32_t number, const std::string& name,
                       size_t count) {
  const auto of_round = static_cast<uint64_t>(round);
  const auto of_member = static_cast<uint64_t>(round + 1000 * number);
  Theta values = noise_of(seed, random_stream(name) + of_member, count);
  const Theta common = noise_of(seed, random_stream("all") + of_round, count);
  for (size_t i = 0; i < count; ++i) values[i] = 0.5F * values[i] + 0.5F * common[i];
  return values;
}

inline void poison_values(Theta& values, Poison poison, uint64_t seed, uint64_t stream) {
  const Theta noise = noise_of(seed, stream, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    switch (poison) {
      case Poison::kNone:
        break;
      case Poison::kSwollen:
        values[i] *= 1e6F;
        break;
      case Poison::kGarbage:
        values[i] = 100 * noise[i];
        break;
      case Poison::kFlipped:
        values[i] = -values[i];
        break;
      case Poison::kNoise:
        values[i] = noise[i];
        break;
    }
  }
}

inline bool abstains(const Plan& plan, uint64_t seed, int64_t round, const std::string& name) {
  return plan.abstain_one_in > 0 &&
         random_bits(seed, 5 + random_stream(name), static_cast<uint64_t>(round)) %
                 plan.abstain_one_in ==
             0;
}

inline Poison poison_of(const Plan& plan, uint64_t seed, int64_t round, const std::string& name) {
  if (plan.poison_one_in == 0) return plan.poison;
  const uint64_t bits = random_bits(seed, 6 + random_stream(name), static_cast<uint64_t>(round));
  if (bits % plan.poison_one_in != 0) return plan.poison;
  return static_cast<Poison>(1 + (bits >> 32) % 4);
}

/// A run of one seed draws its numbers one after the other.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  uint64_t operator()(uint64_t end) { return random_bits(seed_, stream_, num_++) % end; }
  Duration milliseconds(uint64_t least, uint64_t most) {
    return std::chrono::milliseconds(least + (*this)(most - least + 1));
  }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t num_ = 0;
};

}  // namespace atl::collective
