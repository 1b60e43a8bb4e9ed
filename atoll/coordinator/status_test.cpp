#include "atoll/coordinator/status.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "atoll/base/error.h"

namespace atl::swarm {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

/// Every field has a value of its own.
RunStatus full() {
  return {.run = "r1",
          .term = 2,
          .view = 3,
          .state = RunState::kTraining,
          .round = 4,
          .step = 60,
          .steps = 600,
          .committed_tokens = 12345,
          .uptime_s = 61.5,
          .started_at = 1.7e9,
          .age_s = 0.25,
          .rounds_per_minute = 8.5,
          .seconds_left = 90,
          .wanted = 2,
          .live = 2,
          .participating = 1,
          .averaged_share = 0.25,
          .alarm = "island 'b' is live, but took no part in the last 3 commits",
          .islands = {{.name = "a",
                       .number = 0,
                       .address = "127.0.0.1:5",
                       .state = IslandState::kTraining,
                       .reason = "why",
                       .step = 61,
                       .loss = 4.5,
                       .tokens_per_s = 1000,
                       .tokens = 777,
                       .last_round = 4,
                       .left_out = 2,
                       .heard_s = 0.5,
                       .stall_share = 0.125,
                       .links = {{.to = "b", .bytes_per_s = 2.5e6, .rtt_s = 0.031}}},
                      {.name = "b", .state = IslandState::kAway}},
          .events = {{.time_s = 1.5, .kind = "island_joins", .line = "island 'a' joined"}}};
}

RunStatus run_status_from_json(const std::string& text) {
  const std::vector<RunStatus> runs = runs_from_json(text);
  EXPECT_EQ(runs.size(), 1U);
  return runs[0];
}

TEST(StatusJsonTest, HasTheDocumentedFields) {
  const json object = json::parse(to_json(full()));
  std::set<std::string> fields;
  for (const auto& [name, value] : object.items()) fields.insert(name);
  EXPECT_EQ(fields, (std::set<std::string>{"name",
                                           "run",
                                           "term",
                                           "view",
                                           "state",
                                           "round",
                                           "step",
                                           "steps",
                                           "committed_tokens",
                                           "uptime_s",
                                           "started_at",
                                           "age_s",
                                           "rounds_per_minute",
                                           "seconds_left",
                                           "wanted",
                                           "live",
                                           "participating",
                                           "averaged_share",
                                           "alarm",
                                           "islands",
                                           "events",
                                           "ways",
                                           "relays",
                                           "servers"}));
  EXPECT_EQ(object["state"], "training");
  EXPECT_EQ(object["averaged_share"], 0.25);
  EXPECT_EQ(object["islands"][0]["links"][0]["bytes_per_s"], 2.5e6);
  EXPECT_EQ(object["islands"][1]["state"], "away");
  EXPECT_TRUE(object["islands"][1]["loss"].is_null());
  EXPECT_TRUE(object["islands"][1]["number"].is_null());
  EXPECT_EQ(object["events"][0]["line"], "island 'a' joined");
}

TEST(StatusJsonTest, ReadsBackWhatItWrote) {
  const std::string text = to_json(full());
  EXPECT_EQ(to_json(run_status_from_json(text)), text);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const std::string empty = to_json(RunStatus{.run = "x"});
  EXPECT_EQ(to_json(run_status_from_json(empty)), empty);
}

TEST(StatusJsonTest, OfOneRunItIsAnObjectAndOfSeveralAListOfThose) {
  const RunStatus a{.name = "a", .run = "r1", .step = 3};
  const RunStatus b{.name = "b", .run = "r2", .step = 4};
  EXPECT_EQ(runs_to_json({a}), to_json(a));
  const std::string text = runs_to_json({a, b});
  EXPECT_EQ(json::parse(text)["runs"][1], json::parse(to_json(b)));
  EXPECT_EQ(runs_to_json(runs_from_json(text)), text);
  EXPECT_EQ(runs_to_json(runs_from_json(to_json(a))), to_json(a));
  for (const char* other :
       {R"({"runs":3})", R"({"runs":[]})", R"({"runs":[3]})", R"({"runs":[{}]})", "[]"}) {
    EXPECT_THROW(runs_from_json(other), InputError) << other;
  }
}

TEST(StatusJsonTest, NumbersAndBytesThatJsonLacksDoNoHarm) {
  RunStatus run = full();
  run.islands[0].loss = std::numeric_limits<double>::quiet_NaN();
  run.islands[0].address = "\xff\x1b[2J";
  const json object = json::parse(to_json(run));
  EXPECT_TRUE(object["islands"][0]["loss"].is_null());
  EXPECT_FALSE(run_status_from_json(to_json(run)).islands[0].loss);
  EXPECT_THAT(to_text(run), Not(HasSubstr("\x1b")));
}

TEST(StatusJsonTest, NewFieldsAreIgnoredAndWhatIsNoStatusIsRefused) {
  const auto run =
      run_status_from_json(R"({"run":"x","state":"over","islands":[],"weather":"fine"})");
  EXPECT_EQ(run.state, RunState::kOver);
  for (const char* text :
       {"", "<html>", "[]", "3", "{}", R"({"run":"x","islands":[]})",
        R"({"run":"x","state":"happy","islands":[]})", R"({"run":"x","state":3,"islands":[]})",
        R"({"run":"x","state":"over","islands":[],"step":1e99})",
        R"({"run":"x","state":"over","islands":[[]]})",
        R"({"run":"x","state":"over","islands":7})"}) {
    EXPECT_THROW(run_status_from_json(text), InputError) << text;
  }
}

/// A reader of the exposition format, made from its specification alone. Fails the test where the
/// text breaks a rule; returns name and labels -> value, labels sorted.
std::map<std::string, double> read_exposition(const std::string& text) {
  std::map<std::string, double> samples;
  std::set<std::string> closed;  // Metrics whose samples have ended.
  std::string current;
  std::string type;
  EXPECT_TRUE(text.ends_with('\n'));
  const std::regex comment(R"(# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
  const std::regex sample(R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+))");
  const std::regex label(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$))re");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      if (match[1] == "HELP") {
        EXPECT_FALSE(closed.contains(match[2])) << "metric twice: " << line;
        closed.insert(match[2]);
        current = match[2];
      } else {
        type = match[3];
        EXPECT_TRUE(type == "gauge" || type == "counter") << line;
        EXPECT_EQ(type == "counter", current.ends_with("_total")) << line;
      }
      EXPECT_EQ(match[2], current) << line;
      continue;
    }
    EXPECT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_EQ(match[1], current) << "a sample away from its metric: " << line;
    std::set<std::string> labels;
    std::string rest = match[2];
    for (std::smatch one; !rest.empty(); rest = one.suffix()) {
      if (!std::regex_search(rest, one, label, std::regex_constants::match_continuous)) {
        ADD_FAILURE() << "labels: " << line;
        break;
      }
      EXPECT_TRUE(labels.insert(one[1].str() + "=" + one[2].str()).second) << line;
    }
    std::string name = match[1];
    for (const std::string& one : labels) name += " " + one;
    EXPECT_TRUE(samples.emplace(name, std::stod(match[3])).second) << "twice: " << line;
  }
  return samples;
}

TEST(StatusPrometheusTest, ReadsAsTheFormatDemands) {
  const auto samples = read_exposition(to_prometheus({full()}));
  EXPECT_EQ(samples.at("atoll_run_info run=r1"), 1);
  EXPECT_EQ(samples.at("atoll_run_state state=training"), 1);
  EXPECT_EQ(samples.at("atoll_run_state state=over"), 0);
  EXPECT_EQ(samples.at("atoll_round"), 4);
  EXPECT_EQ(samples.at("atoll_step"), 60);
  EXPECT_EQ(samples.at("atoll_committed_tokens_total"), 12345);
  EXPECT_EQ(samples.at("atoll_islands_live"), 2);
  EXPECT_EQ(samples.at("atoll_islands_participating"), 1);
  EXPECT_EQ(samples.at("atoll_averaged_weight_share"), 0.25);
  EXPECT_EQ(samples.at("atoll_alarm"), 1);
  EXPECT_EQ(samples.at("atoll_island_loss island=a"), 4.5);
  EXPECT_EQ(samples.at("atoll_island_committed_tokens_total island=a"), 777);
  EXPECT_EQ(samples.at("atoll_island_state island=b state=away"), 1);
  EXPECT_EQ(samples.at("atoll_link_rtt_seconds from=a to=b"), 0.031);
  EXPECT_FALSE(samples.contains("atoll_island_loss island=b"));  // Unknown is not 0.
  EXPECT_EQ(read_exposition(to_prometheus({RunStatus{}})).at("atoll_alarm"), 0);
}

TEST(StatusPrometheusTest, SeveralRunsShareEachMetric) {
  RunStatus a = full();
  RunStatus b = full();
  a.name = "a";
  b.name = "b";
  b.run = "r2";
  b.step = 80;
  b.islands[0].loss = 3.5;  // Both have an island 'a'.
  const auto samples = read_exposition(to_prometheus({a, b}));
  EXPECT_EQ(samples.at("atoll_run_info id=r1 run=a"), 1);
  EXPECT_EQ(samples.at("atoll_run_info id=r2 run=b"), 1);
  EXPECT_EQ(samples.at("atoll_step run=a"), 60);
  EXPECT_EQ(samples.at("atoll_step run=b"), 80);
  EXPECT_EQ(samples.at("atoll_run_state run=b state=training"), 1);
  EXPECT_EQ(samples.at("atoll_island_loss island=a run=a"), 4.5);
  EXPECT_EQ(samples.at("atoll_island_loss island=a run=b"), 3.5);
  EXPECT_EQ(samples.at("atoll_island_state island=b run=b state=away"), 1);
  EXPECT_EQ(samples.at("atoll_link_rtt_seconds from=a run=b to=b"), 0.031);
  EXPECT_EQ(samples.size(), 2 * read_exposition(to_prometheus({a})).size());
}

TEST(StatusPrometheusTest, LabelsAreEscapedAndOddNumbersAreSpelled) {
  RunStatus run = full();
  run.run = "a\"b\\c\nd";
  run.islands[0].loss = std::numeric_limits<double>::quiet_NaN();
  run.islands[0].tokens_per_s = std::numeric_limits<double>::infinity();
  const std::string text = to_prometheus({run});
  EXPECT_THAT(text, HasSubstr(R"(atoll_run_info{run="a\"b\\c\nd"} 1)"));
  EXPECT_THAT(text, HasSubstr("atoll_island_loss{island=\"a\"} NaN\n"));
  EXPECT_THAT(text, HasSubstr("atoll_island_tokens_per_second{island=\"a\"} +Inf\n"));
  read_exposition(text);
}

TEST(StatusTextTest, ShowsRunIslandsLinksAndAlarm) {
  const std::string text = to_text(full());
  for (const char* part :
       {"run r1: training, round 4, step 60 of 600, 12.3k tokens committed", "8.5 rounds/min",
        "about 01:30 left", "2 live, 1 in the last commit, 25% of their tokens averaged",
        "ALARM: island 'b' is live", "4.5000", "1.0k", "0.5 s", "12%", "a: why",
        "a -> b: 2.5 MB/s, there and back 31 ms", "island 'a' joined"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(to_text(RunStatus{.run = "x", .wanted = 3}), HasSubstr("0 of 3 islands are here"));
  EXPECT_THAT(text, Not(HasSubstr("old")));
  RunStatus old = full();
  old.age_s = 40;
  EXPECT_THAT(to_text(old), HasSubstr("ALARM: this is 40 s old"));
}

TEST(StatusTextTest, OneOfSeveralRunsIsNamed) {
  RunStatus run = full();
  run.name = "ours";
  EXPECT_THAT(to_text(run), HasSubstr("run ours (r1): training"));
  EXPECT_THAT(to_line(run), testing::StartsWith("ours: training, round 4"));
}

TEST(StatusTextTest, ALineHoldsAllInShort) {
  EXPECT_EQ(to_line(full()),
            "training, round 4, step 60 of 600, 2 live, 1 in the last commit, 8.5 rounds/min, "
            "01:30 left | a step 61, loss 4.5000, 1.0k tokens/s | ALARM: island 'b' is live, but "
            "took no part in the last 3 commits");
}

RunStatus serving() {
  return {.run = "r1",
          .wanted = 2,
          .servers = server_statuses({{.name = "a",
                                       .address = "host:7000",
                                       .model = "m",
                                       .num_layers = 32,
                                       .max_layers = 16,
                                       .state = chain::LeaseState::kServing,
                                       .layers = {0, 16},
                                       .layers_per_s = 40,
                                       .num_free = 900,
                                       .num_sessions = 3},
                                      {.name = "b", .model = "m", .num_layers = 32}})};
}

TEST(StatusServersTest, AreInAllForms) {
  const json object = json::parse(to_json(serving()));
  EXPECT_EQ(object["servers"][0]["state"], "serving");
  EXPECT_EQ(object["servers"][0]["last"], 15);
  EXPECT_TRUE(object["servers"][1]["first"].is_null());
  EXPECT_EQ(to_json(run_status_from_json(to_json(serving()))), to_json(serving()));
  const auto samples = read_exposition(to_prometheus({serving()}));
  EXPECT_EQ(samples.at("atoll_server_state server=a state=serving"), 1);
  EXPECT_EQ(samples.at("atoll_server_last_layer server=a"), 15);
  EXPECT_EQ(samples.at("atoll_server_sessions server=a"), 3);
  EXPECT_FALSE(samples.contains("atoll_server_first_layer server=b"));
}

// A run that only serves does not look like one that waits for islands.
TEST(StatusServersTest, AreWhatARunThatOnlyServesShows) {
  const std::string text = to_text(serving());
  for (const char* part : {"run r1: 2 servers, no islands", "0-15/32", "-/32", "serving", "900"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("gathering")));
}

}  // namespace
}  // namespace atl::swarm
