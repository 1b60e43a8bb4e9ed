#include "atoll/plan/plan_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "atoll/testing/temporary_folder.h"

namespace atl::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kIsland = R"([[island]]
name = "a"
devices = 2
tflops = 10
memory = "80GB"
up = "200mbit"
down = "1gbit"
latency = "50ms"
)";
const std::string kOther = R"([[island]]
name = "b"
device = "cpu"
tokens_per_s = 1000
params = 5e6
memory = "16GiB"
up = "20mbit"
down = "100mbit"
latency = "1.5s"
)";
const std::string kGoal = "[goal]\ntime = \"14d\"\n";

PlanRequest parse(const std::string& text) { return parse_plan(text, "p.toml"); }

std::string refusal(const std::string& text) {
  return message_of([&] { parse(text); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

TEST(PlanRequest, ReadsUnits) {
  const PlanRequest request = parse(kIsland + kOther + kGoal);
  ASSERT_EQ(request.islands.size(), 2U);
  const PlannedIsland& a = request.islands[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.devices, 2);
  EXPECT_FALSE(a.is_cpu);
  EXPECT_EQ(a.total_flops_per_s(), 2e13);
  EXPECT_EQ(a.memory_bytes, 80e9);
  EXPECT_EQ(a.up_bits_per_s, 200e6);
  EXPECT_EQ(a.down_bits_per_s, 1e9);
  EXPECT_EQ(a.bits_per_s(), 200e6);
  EXPECT_DOUBLE_EQ(a.latency_s, 0.05);
  const PlannedIsland& b = request.islands[1];
  EXPECT_EQ(b.devices, 1);
  EXPECT_TRUE(b.is_cpu);
  EXPECT_EQ(b.flops_per_s, 6 * 5e6 * 1000);
  EXPECT_EQ(b.memory_bytes, 16.0 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(b.latency_s, 1.5);
  EXPECT_EQ(request.goal.time_s, 14 * 86400);
  EXPECT_EQ(request.goal.sequence_length, 2048);
  EXPECT_TRUE(request.laws.fit.empty());
}

TEST(PlanRequest, ReadsGoalsAndLaws) {
  const PlanRequest request = parse(kIsland + R"([goal]
tokens = 20_000_000_000
loss = 2.5
params = 1e9
sequence_length = 1024
vocab_size = 50304
[laws]
fit = "runs.csv"
count = "papers"
batch_unit = 2048
)");
  EXPECT_EQ(request.goal.tokens, 20e9);
  EXPECT_EQ(request.goal.loss, 2.5);
  EXPECT_EQ(request.goal.params, 1e9);
  EXPECT_EQ(request.goal.sequence_length, 1024);
  EXPECT_EQ(request.goal.vocab_size, 50304);
  EXPECT_EQ(request.laws.fit, "runs.csv");
  EXPECT_EQ(request.laws.read.count, laws::Count::kPapers);
  EXPECT_EQ(request.laws.read.batch_unit_tokens, 2048);
}

TEST(PlanRequest, ReadsWhatTrainingIsFixed) {
  const PlanRequest none = parse(kIsland + kGoal);
  EXPECT_EQ(none.train.precision, std::nullopt);
  EXPECT_EQ(none.train.shard, std::nullopt);
  EXPECT_FALSE(none.train.activation_checkpointing);
  EXPECT_EQ(none.islands[0].precision, "fp32");
  const PlanRequest request =
      parse(replaced(kIsland, "tflops = 10", "tflops = 10\nprecision = \"bf16\"") + kGoal +
            "[train]\nprecision = \"bf16\"\nshard = \"zero1\"\nactivation_checkpointing = true\n");
  EXPECT_EQ(request.islands[0].precision, "bf16");
  EXPECT_EQ(request.train.precision, "bf16");
  EXPECT_EQ(request.train.shard, "zero1");
  EXPECT_TRUE(request.train.activation_checkpointing);
  const std::string zero3 = kGoal + "[train]\nshard = \"zero3\"\n";
  EXPECT_THAT(refusal(kIsland + zero3), HasSubstr("is for CPUs, and 'a' has GPUs; give \"zero1\""));
  EXPECT_EQ(parse(kOther + zero3).train.shard, "zero3");
}

TEST(PlanRequest, OneIslandNeedsNoLink) {
  const std::string alone = "[[island]]\ntflops = 1\nmemory = \"1GB\"\n" + kGoal;
  EXPECT_EQ(parse(alone).islands[0].name, "island-0");
  EXPECT_GT(parse(alone).islands[0].bits_per_s(), 1e300);
  EXPECT_THAT(refusal(alone + "[[island]]\ntflops = 1\nmemory = \"1GB\"\n"),
              AllOf(HasSubstr("'up' is missing"), HasSubstr("'down' is missing"),
                    HasSubstr("'latency' is missing"), HasSubstr("island-1")));
}

struct BadCase {
  const char* from;
  const char* to;
  const char* said;
};

TEST(PlanRequest, EachMistakeIsNamed) {
  for (const BadCase& bad : {
           BadCase{"devices", "device_count", "unknown key 'device_count'"},
           {"memory", "memroy", "did you mean 'memory'?"},
           {"devices = 2", "devices = 0",
            "line 3: island 'a': 'devices' must be from 1 to 1000000, not 0"},
           {"devices = 2", "devices = 2.5", "'devices' must be a whole number"},
           {"tflops = 10", "tflops = -1", "'tflops' must be from"},
           {"tflops = 10", "tflops = nan", "'tflops' must be from 1e-09 to 1000000000, not nan"},
           {"tflops = 10", "tflops = \"10\"", "'tflops' must be a number, not"},
           {"tflops = 10", "", "its speed is missing"},
           {"tflops = 10", "tflops = 10\ntokens_per_s = 1\nparams = 1", "say the same"},
           {"tflops = 10", "tokens_per_s = 10", "'params' is missing"},
           {"tflops = 10", "params = 10", "'tokens_per_s' is missing"},
           {"\"80GB\"", "80", "as in \"80GB\", not 80"},
           {"\"80GB\"", "\"80\"", "as in \"80GB\""},
           {"\"80GB\"", "\"-80GB\"", "must be a number over 0"},
           {"\"200mbit\"", "\"200mbps\"", "(bit, kbit, mbit, gbit)"},
           {"\"200mbit\"", "\"1e-300bit\"", "'up' must be a number from 1kbit"},
           {"\"1gbit\"", "\"999bit\"", "'down' must be a number from 1kbit"},
           {"\"a\"", "\"\"", "'name' must be 1 to 64 of letters"},
           {"\"a\"", "\"a\\u007fb\"", "island 'a?b': 'name' must be"},
           {"\"a\"", "\"a\\u001b[2Jb\"", "island 'a?[2Jb': 'name' must be"},
           {"devices = 2", "\"dev\\u001bices\" = 2", "unknown key 'dev?ices'"},
           {"\"50ms\"", "\"2h\"", "'latency' must be"},
           {"\"14d\"", "\"fortnight\"", "as in \"14d\""},
           {"\"14d\"", "\"1e-300s\"", "'time' must be a number from 1ms"},
           {"\"14d\"", "14", "as in \"14d\""},
           {"time = \"14d\"", "", "must be one of 'time', 'tokens', 'loss', 'params'"},
           {"time = \"14d\"", "loss = 0", "'loss' must be from"},
           {"time = \"14d\"", "tokens = 1e9\nvocab_size = 10", "'vocab_size' must be"},
           {"time = \"14d\"", "tokens = 1e9\nparams = 1e6\ntokens_per_param = 20",
            "leave 'tokens_per_param' out"},
           {"time = \"14d\"", "time = \"14d\"\n[laws]\ncount = \"papers\"", "there is none"},
           {"time = \"14d\"", "time = \"14d\"\n[laws]\nfit = \"f\"\ncount = \"mine\"",
            "must be one of column, papers"},
           {"tflops = 10", "tflops = 10\nprecision = \"fp16\"", "must be one of fp32, bf16"},
           {"time = \"14d\"", "time = \"14d\"\n[train]\nshard = \"zero2\"",
            "must be one of none, zero1, zero3"},
           {"time = \"14d\"", "time = \"14d\"\n[train]\nactivation_checkpointing = 1",
            "[train]: 'activation_checkpointing' must be"},
           {"[goal]", "[gaol]", "did you mean 'goal'?"},
           {"[[island]]", "[island]", "with two brackets"},
           {"[goal]", "[goal", "line"},
       }) {
    EXPECT_THAT(refusal(replaced(kIsland + kGoal, bad.from, bad.to)),
                AllOf(HasSubstr("p.toml"), HasSubstr(bad.said)))
        << bad.from << " -> " << bad.to;
  }
  EXPECT_THAT(refusal(kIsland + kIsland + kGoal), HasSubstr("two islands are called 'a'"));
  EXPECT_THAT(refusal("goal = 3\n" + kIsland), HasSubstr("'goal' must be a section"));
  EXPECT_THAT(refusal("island = []\n" + kGoal), HasSubstr("there must be an [[island]]"));
  EXPECT_THAT(refusal(std::string(kMaxPlanBytes + 1, '#')), HasSubstr("larger than 1 MiB"));
}

TEST(PlanRequest, AllMistakesAreToldAtOnce) {
  const std::string message =
      refusal(replaced(replaced(kIsland, "devices = 2", "devices = 0"), "tflops", "teraflops") +
              "[goal]\ntime = 3\n");
  EXPECT_THAT(message,
              AllOf(HasSubstr("4 mistakes"), HasSubstr("'devices'"), HasSubstr("'teraflops'"),
                    HasSubstr("speed is missing"), HasSubstr("'time'")));
}

TEST(PlanRequest, TooManyIslands) {
  std::string text = kGoal;
  for (size_t i = 0; i <= kMaxPlannedIslands; ++i) {
    text += replaced(kIsland, "\"a\"", "\"i" + std::to_string(i) + "\"");
  }
  EXPECT_THAT(refusal(text), HasSubstr("65 islands"));
}

}  // namespace
}  // namespace atl::plan
