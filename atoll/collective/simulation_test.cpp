// The whole protocol (coordinator, members, exchange) over the simulated network, for hundreds of
// seeds: other latencies, bandwidths, sizes and faults each time. A failing seed prints its number;
// ATOLL_SIM_SEED=N runs it alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "atoll/base/hash.h"
#include "atoll/base/random.h"
#include "atoll/collective/engine.h"
#include "atoll/sim/sim_transport.h"
#include "atoll/swarm/coordinator_server.h"

namespace atl::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr Duration kTick = milliseconds(100);

/// What must hold for the run as a whole; islands report to it as they go.
struct Ledger {
  std::map<int64_t, Digest> commits;
  std::map<int64_t, std::set<std::string>> prepared;
  std::map<int64_t, std::vector<float>> means;  // As they must be, in FP32.
};

struct Plan {
  int num_islands = 2;
  std::vector<int64_t> rounds = {3, 4, 5};
  size_t count = 100;
  int in_flight = 1;
  std::string codec = "fp32";
  Duration step_time = milliseconds(50);
};

std::vector<float> values_of(uint64_t seed, int64_t round, const std::string& name, size_t count) {
  std::vector<float> values(count);
  const uint64_t stream = random_stream(name) + static_cast<uint64_t>(round);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(random_uniform(seed, stream, i) - 0.5);
  }
  return values;
}

int64_t weight_of(const std::string& name) { return 1 + static_cast<int64_t>(name.back() % 7); }

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
        transport_(network.make_transport(name_, [this](net::Event event) {
          soon([this, event = std::move(event)] { engine_->handle(event, now()); });
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
    soon([this] {
      engine_->ready({.facts = facts, .checkpoints = checkpoints, .codec = plan_.codec},
                     codec::make_codec(plan_.codec));
    });
  }
  void started(const StartInfo& info) override {
    start = info;
    soon([this] { begin_due(); });
  }
  void committed(const Commit& commit, double) override {
    EXPECT_TRUE(prepared_.contains(commit.round)) << name_;
    EXPECT_EQ(prepared_[commit.round], commit.digest);
    EXPECT_EQ(ledger_.prepared[commit.round].size(), commit.members.size())
        << "applied before all had prepared";
    const auto [known, first] = ledger_.commits.emplace(commit.round, commit.digest);
    EXPECT_EQ(known->second, commit.digest) << "two commits of one round";
    values_.erase(commit.round);
    stop_ = stop_ || commit.stop;
    applied.push_back(commit.round);
    soon([this] { begin_due(); });
  }
  void left() override { done = true; }
  void failed(const std::string& reason) override {
    EXPECT_TRUE(failure.empty()) << "failed twice";
    failure = reason;
    values_.clear();  // As a caller may once wait() has failed: the engine must not touch them.
  }

  void kill() {
    dead = true;
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
    if (!ended()) soon([this] { tick(); }, kTick);
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
      soon([this, round] { begin(round); }, plan_.step_time);
    }
  }
  void begin(int64_t round) {
    if (ended()) return;
    const auto prepare = [this, round](std::span<const float> mean) {
      std::vector<float>& expected = ledger_.means[round];
      if (expected.empty()) expected = expected_mean(round);
      if (plan_.codec == "fp32") {
        EXPECT_TRUE(std::ranges::equal(mean, expected));
      }
      Digest digest = tree_digest(std::as_bytes(mean));
      if (std::exchange(forge, false)) digest[0] ^= std::byte{1};
      EXPECT_TRUE(prepared_.emplace(round, digest).second) << "prepared twice";
      ledger_.prepared[round].insert(name_);
      return digest;
    };
    engine_->begin({.round = round,
                    .step = round * 10,
                    .weight = weight_of(name_),
                    .values = values_.at(round),
                    .prepare = prepare},
                   now());
  }

  std::vector<float> expected_mean(int64_t round) const {
    std::vector<float> mean(plan_.count);
    int64_t sum = 0;
    for (const std::string& name : start->members) sum += weight_of(name);
    for (const std::string& name : start->members) {
      const auto values = values_of(seed_, round, name, plan_.count);
      const auto factor =
          static_cast<float>(static_cast<double>(weight_of(name)) / static_cast<double>(sum));
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += factor * values[i];
    }
    return mean;
  }

  sim::SimNetwork& network_;
  uint64_t seed_;
  std::string name_;
  Plan plan_;
  Ledger& ledger_;
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<Engine> engine_;
  std::string config_;
  std::map<int64_t, std::vector<float>> values_;
  std::map<int64_t, Digest> prepared_;
  size_t next_ = 0;
  bool stop_ = false;
  bool leaving_ = false;
};

class World {
 public:
  World(uint64_t seed, Plan plan, sim::LinkOptions link = {})
      : network({.seed = seed, .link = link}), seed_(seed), plan_(std::move(plan)) {}

  void start_coordinator() {
    transport_ = network.make_transport("coordinator", [this](net::Event event) {
      network.queue().after({}, [this, event = std::move(event)] {
        if (!coordinator_dead) service->handle(event, network.queue().now());
      });
    });
    swarm::CoordinatorOptions options{.run = "r1",
                                      .config = "steps = 3",
                                      .settings = {{"sync.sync_every", "20"}},
                                      .min_replicas = plan_.num_islands};
    service = std::make_unique<swarm::CoordinatorService>(
        options,
        swarm::CoordinatorCallbacks{.on_log =
                                        [this](const std::string& line) {
                                          log += fmt::format(
                                              "{:.3f} {}\n",
                                              atl::seconds(network.queue().now() - Time{}), line);
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

TEST(SimulationTest, TwoIslandsTrainToTheEnd) {
  World world(1, {});
  world.start_coordinator();
  world.add_all();
  ASSERT_TRUE(world.run(seconds(60))) << world.log;
  for (const auto& island : world.islands) {
    EXPECT_TRUE(island->done) << island->failure;
    EXPECT_THAT(island->applied, testing::ElementsAre(3, 4, 5));
  }
  ASSERT_TRUE(world.service->result().has_value());
  EXPECT_TRUE(world.service->result()->has_value());
}

/// Every island that is alive failed, saying all of `words`.
void expect_all_failed(const World& world, const std::vector<std::string>& words) {
  for (const auto& island : world.islands) {
    if (island->dead) continue;
    EXPECT_FALSE(island->done) << island->name();
    for (const std::string& word : words) EXPECT_THAT(island->failure, HasSubstr(word));
  }
}

/// The virtual time until all have ended.
double seconds_until_end(World& world, Duration patience) {
  const Time begin = world.network.queue().now();
  EXPECT_TRUE(world.run(patience)) << world.log;
  return atl::seconds(world.network.queue().now() - begin);
}

Plan endless() {
  Plan plan;
  plan.num_islands = 3;
  plan.rounds.clear();
  for (int64_t round = 0; round < 10'000; ++round) plan.rounds.push_back(round);
  return plan;
}

/// Three islands in the middle of training.
struct Training : World {
  Training() : World(1, endless()) {
    start_coordinator();
    add_all();
    EXPECT_TRUE(
        network.queue().run_until([this] { return ledger.commits.size() > 5; }, seconds(60)));
  }
};

TEST(SimulationTest, KilledIslandEndsTheRunAtOnceForAll) {
  Training world;
  world.islands[1]->kill();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 0.5);
  expect_all_failed(world, {"'island-1' was lost", "last committed round is", "to resume"});
  EXPECT_FALSE(world.service->result()->has_value());
}

TEST(SimulationTest, KilledCoordinatorEndsTheRunAtOnceForAll) {
  Training world;
  world.kill_coordinator();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 0.5);
  expect_all_failed(world, {"the coordinator was lost", "to resume"});
}

TEST(SimulationTest, SilentIslandIsLostWithinTheTimeout) {
  Training world;
  world.network.cut("island-1", "coordinator");
  EXPECT_LT(seconds_until_end(world, seconds(120)), 35);
  for (const int i : {0, 2}) {
    EXPECT_THAT(world.islands[static_cast<size_t>(i)]->failure, HasSubstr("'island-1' was lost"));
  }
  EXPECT_THAT(world.islands[1]->failure, HasSubstr("the coordinator was lost"));
}

TEST(SimulationTest, IslandsThatCannotReachEachOtherAreNamed) {
  Training world;
  world.network.cut("island-1", "island-2");
  EXPECT_LT(seconds_until_end(world, seconds(120)), 35);
  expect_all_failed(world, {"island-1", "island-2", "connection"});
}

TEST(SimulationTest, AbsentCoordinatorIsTriedUntilThePatienceIsOver) {
  World world(1, {});
  Island& island = world.add("island-0");
  EXPECT_NEAR(seconds_until_end(world, seconds(120)), 60, 6);
  EXPECT_THAT(island.failure, AllOf(HasSubstr("no coordinator answered at 'coordinator:7'"),
                                    HasSubstr("within 60 s")));
}

TEST(SimulationTest, LateCoordinatorIsFound) {
  World world(1, {});
  world.add_all();
  world.network.queue().run_for(seconds(20));
  world.start_coordinator();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 10);
  for (const auto& island : world.islands) EXPECT_TRUE(island->done) << island->failure;
}

TEST(SimulationTest, OtherSettingIsRefusedByName) {
  World world(1, {});
  world.start_coordinator();
  world.add("island-0", {{"sync.sync_every", "20"}});
  Island& other = world.add("island-1", {{"sync.sync_every", "30"}});
  world.network.queue().run_for(seconds(5));
  EXPECT_THAT(other.failure,
              HasSubstr("sync.sync_every: the coordinator has 20, this island asked for 30"));
  EXPECT_FALSE(world.islands[0]->ended());
  world.add("island-2", {{"sync.sync_every", "20"}});  // Its place is free.
  ASSERT_TRUE(world.run(seconds(60)));
  EXPECT_TRUE(world.islands[0]->done);
}

TEST(SimulationTest, OtherDataIsRefusedByName) {
  World world(1, {});
  world.start_coordinator();
  world.add("island-0");
  world.network.queue().run_for(seconds(1));
  Island& other = world.add("island-1");
  other.facts = {{"data", "d2"}};
  world.network.queue().run_for(seconds(5));
  EXPECT_THAT(other.failure, HasSubstr("data: island 'island-0' has d1, this island d2"));
  EXPECT_FALSE(world.islands[0]->ended());
}

TEST(SimulationTest, ThirdIslandIsRefused) {
  Training world;
  Island& late = world.add("late");
  world.network.queue().run_for(seconds(1));
  EXPECT_THAT(late.failure, HasSubstr("has its 3 islands (island-0, island-1, island-2"));
  EXPECT_FALSE(world.islands[0]->ended());
}

TEST(SimulationTest, StartsFromTheNewestCommonCheckpoint) {
  World world(1, {});
  world.start_coordinator();
  world.add_all();
  world.islands[0]->checkpoints = {{10, "a"}, {20, "b"}, {30, "c"}};
  world.islands[1]->checkpoints = {{10, "a"}, {20, "b"}, {30, "other"}, {40, "d"}};
  ASSERT_TRUE(world.run(seconds(60)));
  EXPECT_EQ(world.islands[0]->start->start_step, 20);
  EXPECT_EQ(world.islands[1]->start->start_step, 20);
}

TEST(SimulationTest, NoCommonCheckpointEndsTheRunNamingThem) {
  World world(1, {});
  world.start_coordinator();
  world.add_all();
  world.islands[1]->checkpoints = {{10, "a"}};
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"checkpoints", "'island-0' step 0 (p0)", "'island-1' step 10 (a)"});
}

TEST(SimulationTest, StopRequestStopsAllAfterTheSameRound) {
  Training world;
  world.islands[2]->engine().request_stop();
  ASSERT_TRUE(world.run(seconds(60)));
  for (const auto& island : world.islands) {
    EXPECT_TRUE(island->done) << island->failure;
    EXPECT_EQ(island->applied, world.islands[0]->applied);
  }
  EXPECT_TRUE(world.service->result()->has_value());
}

TEST(SimulationTest, NotANumberNamesItsIsland) {
  Training world;
  world.islands[1]->poison = true;
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"the values of island 'island-1'", "cannot be sent"});
}

TEST(SimulationTest, DifferentDigestsEndTheRunBeforeTheCommit) {
  Training world;
  world.islands[1]->forge = true;
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"the results differ", "island-1"});
}

/// What a faulty peer's frames do to the run: it ends for all, and all hear who it was.
struct Damage {
  std::string name;
  bool bulk;
  std::function<void(Bytes&)> change;
};

class DamageTest : public testing::TestWithParam<Damage> {};

TEST_P(DamageTest, EndsTheRunNamingThePeer) {
  Training world;
  bool done = false;
  world.network.set_tamper([&](const std::string& from, const std::string& to, Bytes& frame) {
    const bool bulk = to != "coordinator";
    if (done || from != "island-1" || bulk != GetParam().bulk) return;
    done = true;
    GetParam().change(frame);
  });
  EXPECT_LT(seconds_until_end(world, seconds(60)), 5);
  expect_all_failed(world, {"island-1"});
}

INSTANTIATE_TEST_SUITE_P(
    Frames, DamageTest,
    testing::Values(Damage{"Garbage", true, [](Bytes& f) { f.assign(100, std::byte{0x5A}); }},
                    Damage{"GarbageControl", false,
                           [](Bytes& f) { f.assign(100, std::byte{0x5A}); }},
                    Damage{"Empty", true, [](Bytes& f) { f.clear(); }},
                    Damage{"Short", true, [](Bytes& f) { f.resize(f.size() / 2); }},
                    Damage{"Long", true, [](Bytes& f) { f.resize(f.size() + 1); }},
                    Damage{"LaterVersion", true, [](Bytes& f) { f[4] = std::byte{9}; }},
                    Damage{"NotANumber", true,
                           [](Bytes& f) { std::fill(f.end() - 4, f.end(), std::byte{0xFF}); }}),
    [](const auto& param) { return param.param.name; });

TEST(SimulationTest, StrangersDoNotDisturb) {
  Training world;
  std::vector<net::ConnectionId> lost;
  auto stranger = world.network.make_transport("stranger", [&](net::Event event) {
    if (const auto* gone = std::get_if<net::Lost>(&event)) lost.push_back(gone->connection);
  });
  for (const std::string target : {"coordinator:7", "island-0:7", "island-1:7"}) {
    for (const net::Plane plane : {net::Plane::kControl, net::Plane::kBulk}) {
      const auto connection = stranger->connect(target, plane);
      EXPECT_EQ(stranger->send(connection, Bytes(50, std::byte{7})), net::Sent::kAccepted);
    }
  }
  const size_t commits = world.ledger.commits.size();
  world.network.queue().run_for(seconds(20));
  EXPECT_EQ(lost.size(), 6U);
  EXPECT_GT(world.ledger.commits.size(), commits + 10);
}

/// A run made from a seed: sizes, links, and at most one fault at some moment.
void run_seed(uint64_t seed) {
  uint64_t draws = 0;
  const auto draw = [&](uint64_t end) { return random_bits(seed, 77, draws++) % end; };
  Plan plan;
  plan.num_islands = 1 + static_cast<int>(draw(5));
  plan.count = draw(16) == 0 ? draw(150'000) : draw(3'000);
  plan.in_flight = 1 + static_cast<int>(draw(3));
  plan.codec = draw(2) == 0 ? "fp32" : "bf16";
  plan.step_time = milliseconds(draw(300));
  plan.rounds.clear();
  const int64_t first = static_cast<int64_t>(draw(100));
  for (int64_t i = 0; i < 6; ++i) plan.rounds.push_back(first + i);
  World world(seed, plan,
              {.latency = milliseconds(draw(100)),
               .jitter = milliseconds(draw(50)),
               .bits_per_second = draw(2) == 0 ? 0.0 : 2e6 + static_cast<double>(draw(50)) * 1e6});
  world.start_coordinator();
  world.add_all();
  const uint64_t fault = draw(8);
  const Duration when = milliseconds(draw(4'000));
  const auto pick = [&] {
    return fmt::format("island-{}", draw(static_cast<uint64_t>(plan.num_islands)));
  };
  const std::string a = pick();
  const std::string b = draw(2) == 0 ? "coordinator" : pick();
  world.network.queue().after(when, [&] {
    if (fault == 0) world.islands[a.back() - '0']->kill();
    if (fault == 1) world.kill_coordinator();
    if (a == b) return;
    if (fault == 2) world.network.cut(a, b);
    if (fault == 3) world.network.cut_one_way(a, b);
    if (fault == 4) world.network.break_connections(a, b);
    if (fault == 5) world.islands[a.back() - '0']->engine().request_stop();
  });
  const bool ended = world.run(seconds(200));
  const bool begun = world.log.find("the run begins") != std::string::npos;
  if (fault < 5 && !begun && !ended) return;  // They rightly wait for another island.
  std::string state;
  for (const auto& island : world.islands) {
    state += fmt::format("{}: done {}, dead {}, applied {}, '{}'\n", island->name(), island->done,
                         island->dead, island->applied.size(), island->failure);
  }
  ASSERT_TRUE(ended) << plan.count << " values, step " << atl::seconds(plan.step_time)
                     << " s; fault " << fault << " at " << atl::seconds(when) << " s between " << a
                     << " and " << b << ": somebody waits for ever\n"
                     << state << world.log;
  const bool harmless = fault > 5;
  for (const auto& island : world.islands) {
    if (harmless) {
      EXPECT_TRUE(island->done) << island->name() << ": " << island->failure << "\n" << world.log;
      EXPECT_EQ(island->applied.size(), plan.rounds.size());
    }
    EXPECT_TRUE(
        std::ranges::equal(island->applied, std::span(plan.rounds).first(island->applied.size())) ||
        plan.in_flight > 1);
  }
}

TEST(SimulationTest, Seeds) {
  if (const char* one = std::getenv("ATOLL_SIM_SEED")) {
    run_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  const char* asked = std::getenv("ATOLL_SIM_SEEDS");
  const uint64_t num_seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 400;
  for (uint64_t seed = 0; seed < num_seeds; ++seed) {
    run_seed(seed);
    ASSERT_FALSE(HasFailure()) << "ATOLL_SIM_SEED=" << seed << " replays it";
  }
}

}  // namespace
}  // namespace atl::collective
