#pragma once
// For tests: a run of islands that train, in simulated time. Each island checks at each round that
// it got what the definition says, and no commit before all had prepared.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/base/random.h"
#include "atoll/collective/engine.h"
#include "atoll/collective/exchange.h"
#include "atoll/collective/mean_definition.h"
#include "atoll/sim/sim_transport.h"
#include "atoll/swarm/coordinator_server.h"
#include "atoll/swarm/rules.h"

namespace atl::collective {

constexpr Duration kTick = std::chrono::milliseconds(100);

/// What must hold for the run as a whole; islands report to it as they go.
struct Ledger {
  std::map<int64_t, Digest> commits;
  std::map<int64_t, std::set<std::string>> prepared;
  std::map<std::pair<int64_t, std::vector<std::string>>, DefinedRound> rounds;  // As they must be.
  std::set<std::string> dead;
  std::map<int64_t, int64_t> bytes_sent;  // By all islands that committed.
  std::map<int64_t, int64_t> bytes_received;
};

struct Plan {
  int num_islands = 2;
  int min_replicas = 0;  // 0: all of them.
  std::vector<int64_t> rounds = {3, 4, 5};
  size_t count = 100;
  int in_flight = 1;
  std::string codec = "fp32";
  Topology topology = Topology::kScatter;
  bool has_residual = false;
  uint64_t abstain_one_in = 0;  // Of the islands in each round; 0: none.
  Duration step_time = std::chrono::milliseconds(50);
  Duration unit_time{};     // That a unit of work takes.
  Duration prepare_time{};  // And an outer step.
};

inline std::vector<float> values_of(uint64_t seed, int64_t round, const std::string& name,
                                    size_t count) {
  std::vector<float> values(count);
  const uint64_t stream = random_stream(name) + static_cast<uint64_t>(round);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(random_uniform(seed, stream, i) - 0.5);
  }
  return values;
}

inline int64_t weight_of(const Plan& plan, uint64_t seed, int64_t round, const std::string& name) {
  const uint64_t stream = 5 + random_stream(name);
  const bool abstains =
      plan.abstain_one_in > 0 &&
      random_bits(seed, stream, static_cast<uint64_t>(round)) % plan.abstain_one_in == 0;
  return abstains ? 0 : 1 + static_cast<int64_t>(name.back() % 7);
}

/// A process that trains: takes snapshots in time, applies what is committed, leaves at the end.
class Island final : public EngineListener {
 public:
  Island(sim::SimNetwork& network, uint64_t seed, std::string name, Plan plan, Ledger& ledger,
         std::map<std::string, std::string> settings = {})
      : network_(network),
        seed_(seed),
        name_(std::move(name)),
        plan_(std::move(plan)),
        ledger_(ledger),
        codec_(codec::make_codec(plan_.codec)),
        transport_(network.make_transport(name_, [this](net::Event event) {
          soon([this, event = std::move(event)] {
            engine_->handle(event, now());
            work();
          });
        })) {
    const std::string address = transport_->listen("any:7").value();
    SessionOptions options{
        .coordinator = "coordinator:7", .name = name_, .settings = std::move(settings)};
    engine_ = std::make_unique<Engine>(options, address, *transport_, *this);
    engine_->connect(now());
    tick();
  }

  void welcomed(const std::string&, const std::string& config) override {
    config_ = config;
    soon([this] { engine_->ready({.facts = facts, .checkpoints = checkpoints}); });
  }
  void started(const StartInfo& info) override {
    start = info;
    soon([this] { begin_due(); });
  }
  void leased(const std::vector<swarm::Units>& units) override {
    num_units += swarm::num_units(units);
  }
  void reinstated(int64_t /*step*/) override {}
  void fetched(int32_t /*fragment*/, Result<FetchedState> state) override {
    fetched_state = std::move(state);
  }
  void committed(const Commit& commit, bool begun) override {
    if (commit.missed != nullptr) return take_missed(commit, begun);
    ASSERT_TRUE(prepared_.contains(commit.round)) << name_;
    expect_as_defined(commit, prepared_[commit.round]);
    EXPECT_EQ(prepared_[commit.round].digest, commit.digest);
    for (const std::string& name : commit.members) {
      EXPECT_TRUE(ledger_.prepared[commit.round].contains(name) || ledger_.dead.contains(name))
          << "applied before all had prepared";
    }
    const auto [known, first] = ledger_.commits.emplace(commit.round, commit.digest);
    EXPECT_EQ(known->second, commit.digest) << "two commits of one round";
    std::vector<std::string> abstainers;
    for (const std::string& name : commit.members) {
      if (weight_of(plan_, seed_, commit.round, name) == 0) abstainers.push_back(name);
    }
    EXPECT_EQ(commit.abstainers, abstainers);
    ledger_.bytes_sent[commit.round] += commit.bytes_sent;
    ledger_.bytes_received[commit.round] += commit.bytes_received;
    values_.erase(commit.round);
    new_residuals_.erase(commit.round);
    prepared_.erase(commit.round);
    stop_ = stop_ || commit.stop;
    applied.push_back(commit.round);
    soon([this] { begin_due(); });
  }
  void prepare(PrepareJob job) override {
    job_ = std::move(job);
    soon([this] { finish_job(); }, plan_.prepare_time);
  }
  void left() override { done = true; }
  void failed(const std::string& reason, bool /*may_join_again*/) override {
    EXPECT_TRUE(failure.empty()) << "failed twice";
    failure = reason;
    if (job_) std::exchange(job_, nullptr)();  // As a thread that cannot be stopped.
    new_residuals_.clear();
    values_.clear();  // As a caller may once wait() has failed: the engine must not touch them.
  }

  void kill() {
    dead = true;
    ledger_.dead.insert(name_);
    network_.crash(name_);
  }
  bool ended() const { return done || dead || !failure.empty(); }
  Engine& engine() { return *engine_; }
  const std::string& name() const { return name_; }

  std::map<std::string, std::string> facts = {{"data", "d1"}};
  std::map<int64_t, std::string> checkpoints = {{0, "p0"}};
  std::optional<StartInfo> start;
  std::vector<int64_t> applied;
  std::string failure;
  bool done = false;
  bool dead = false;
  bool poison = false;  // Its next snapshot holds a NaN.
  bool forge = false;   // Its next digest is wrong.

 private:
  Time now() const { return network_.queue().now(); }
  void soon(std::function<void()> action, Duration delay = {}) {
    network_.queue().after(delay, [this, action = std::move(action)] {
      if (!dead) action();
    });
  }
  void tick() {
    engine_->tick(now());
    work();
    if (!ended()) soon([this] { tick(); }, kTick);
  }

  /// One unit, and after the time it takes the next.
  void work() {
    if (working_ || ended()) return;
    working_ = engine_->work(now());
    if (!working_) return;
    soon(
        [this] {
          working_ = false;
          work();
        },
        plan_.unit_time);
  }

  void finish_job() {
    if (!job_) return;
    const Result<Digest> digest = std::exchange(job_, nullptr)();
    engine_->prepared(digest, now());
    work();
  }

  void begin_due() {
    if (ended() || leaving_) return;
    const bool finished = stop_ || applied.size() == plan_.rounds.size();
    if (finished && values_.empty()) {
      leaving_ = true;
      soon(
          [this] {
            if (!ended()) engine_->leave();
          },
          plan_.step_time * (1 + name_.back() % 3));
      return;
    }
    while (!stop_ && std::ssize(values_) < plan_.in_flight && next_ < plan_.rounds.size()) {
      const int64_t round = plan_.rounds[next_++];
      values_[round] = values_of(seed_, round, name_, plan_.count);
      if (std::exchange(poison, false)) values_[round].back() = NAN;
      if (weight_of(plan_, seed_, round, name_) == 0) {
        std::ranges::fill(values_[round], NAN);
      }
      new_residuals_[round].assign(plan_.has_residual ? plan_.count : 0, 55.0F);
      soon([this, round] { begin(round); }, plan_.step_time);
    }
  }
  void begin(int64_t round) {
    if (ended()) return;
    const auto prepare = [this, round](std::span<const float> mean, std::span<const float> own) {
      Digest digest = tree_digest(std::as_bytes(mean));
      if (std::exchange(forge, false)) digest[0] ^= std::byte{1};
      prepared_[round] = {digest, {mean.begin(), mean.end()}, {own.begin(), own.end()}};
      ledger_.prepared[round].insert(name_);
      return digest;
    };
    engine_->begin({.round = round,
                    .step = round * 10,
                    .weight = weight_of(plan_, seed_, round, name_),
                    .values = values_.at(round),
                    .codec = codec_.get(),
                    .topology = plan_.topology,
                    .mean_residual = residual_,
                    .new_mean_residual = new_residuals_.at(round),
                    .needs_own = true,
                    .prepare = prepare},
                   now());
  }

  struct Outcome {  // What prepare() was given.
    Digest digest{};
    std::vector<float> mean;
    std::vector<float> own;
  };

  /// What was prepared last is what the members of the commit make together.
  void expect_as_defined(const Commit& commit, const Outcome& prepared) {
    const auto key = std::pair(commit.round, commit.members);
    if (!ledger_.rounds.contains(key)) ledger_.rounds[key] = define(commit.round, commit.members);
    const DefinedRound& expected = ledger_.rounds[key];
    const auto rank =
        static_cast<size_t>(std::ranges::find(commit.members, name_) - commit.members.begin());
    EXPECT_TRUE(std::ranges::equal(prepared.mean, expected.mean));
    EXPECT_TRUE(std::ranges::equal(prepared.own, expected.own[rank]));
    if (plan_.has_residual) {
      EXPECT_EQ(new_residuals_.at(commit.round), expected.new_residuals[rank]);
    }
  }

  DefinedRound define(int64_t round, const std::vector<std::string>& members) const {
    RoundInputs in{.codec = codec_.get(),
                   .topology = plan_.topology,
                   .sequence = static_cast<uint32_t>(round),
                   .shares = equal_shares(plan_.count, plan_.topology, std::ssize(members)),
                   .segment_values = segment_size(plan_.count, plan_.topology)};
    for (const std::string& name : members) {
      in.values.push_back(values_of(seed_, round, name, plan_.count));
      in.weights.push_back(weight_of(plan_, seed_, round, name));
      if (plan_.has_residual) in.residuals.push_back(residual_);
    }
    return define_round(in);
  }

  sim::SimNetwork& network_;
  uint64_t seed_;
  std::string name_;
  Plan plan_;
  Ledger& ledger_;
  std::unique_ptr<codec::Codec> codec_;
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<Engine> engine_;
  std::string config_;
  std::map<int64_t, std::vector<float>> values_;
  const std::vector<float> residual_ =
      plan_.has_residual ? values_of(7, 7, "residual", plan_.count) : std::vector<float>();
  std::map<int64_t, std::vector<float>> new_residuals_;
  std::map<int64_t, Outcome> prepared_;
  size_t next_ = 0;
  bool stop_ = false;
  bool leaving_ = false;
  bool working_ = false;  // A unit, whose time is not over.
  PrepareJob job_;        // Handed out and not done.
};

class World {
 public:
  World(uint64_t seed, Plan plan, sim::LinkOptions link = {})
      : network({.seed = seed, .link = link}), seed_(seed), plan_(std::move(plan)) {}

  /// Again after kill_coordinator(): with what the journal has.
  void start_coordinator() {
    coordinator_dead = false;
    const swarm::Book book = swarm::read_book(journal);
    transport_ = network.make_transport("coordinator", [this](net::Event event) {
      network.queue().after({}, [this, event = std::move(event)] {
        if (!coordinator_dead) service->handle(event, network.queue().now());
      });
    });
    swarm::CoordinatorOptions options{.run = "r1",
                                      .config = "steps = 3",
                                      .settings = {{"sync.codec", "\"bf16\""},
                                                   {"sync.method", "\"diloco\""},
                                                   {"sync.sync_every", "20"}},
                                      .replicas = plan_.num_islands,
                                      .min_replicas = std::max(plan_.min_replicas, 1)};
    service = std::make_unique<swarm::CoordinatorService>(
        options, book,
        swarm::CoordinatorCallbacks{
            .persist =
                [this](const swarm::Record& record) { journal.push_back(swarm::encode(record)); },
            .on_log =
                [this](const std::string& line) {
                  log += fmt::format("{:.3f} {}\n", atl::seconds(network.queue().now() - Time{}),
                                     line);
                }},
        *transport_, network.queue().now());
    EXPECT_TRUE(transport_->listen("any:7").has_value());
    tick();
  }
  Island& add(const std::string& name, std::map<std::string, std::string> settings = {}) {
    islands.push_back(std::make_unique<Island>(network, seed_, name, plan_, ledger, settings));
    return *islands.back();
  }
  void add_all() {
    for (int i = 0; i < plan_.num_islands; ++i) add(fmt::format("island-{}", i));
  }
  void kill_coordinator() {
    coordinator_dead = true;
    network.crash("coordinator");
  }
  bool all_ended() const {
    return std::ranges::all_of(islands, [](const auto& island) { return island->ended(); });
  }
  bool run(Duration patience) {
    return network.queue().run_until([this] { return all_ended(); }, patience);
  }

  sim::SimNetwork network;
  Ledger ledger;
  std::unique_ptr<swarm::CoordinatorService> service;
  std::vector<std::unique_ptr<Island>> islands;
  std::string log;
  std::vector<Bytes> journal;  // Of the coordinator.
  bool coordinator_dead = false;

 private:
  void tick() {
    if (coordinator_dead) return;
    service->tick(network.queue().now());
    network.queue().after(kTick, [this] { tick(); });
  }
  uint64_t seed_;
  Plan plan_;
  std::unique_ptr<net::Transport> transport_;
};

}  // namespace atl::collective
