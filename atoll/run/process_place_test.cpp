#include "atoll/run/process_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Environment by_torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node-7"},
          {"MASTER_PORT", "29500"}};
}

Environment by_slurm() {
  return {{"SLURM_PROCID", "5"},         {"SLURM_STEP_NUM_TASKS", "6"},
          {"SLURM_LOCALID", "1"},        {"SLURM_STEP_NODELIST", "gpu[03-04,9],other"},
          {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
          {"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "2"}};
}

std::string refusal(const Environment& environment, int64_t asked = 0) {
  try {
    process_place(environment, asked);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(ProcessPlaceTest, WithoutVariablesAProcessIsAnIsland) {
  EXPECT_FALSE(process_place({}, 0));
  EXPECT_FALSE(
      process_place({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}}, 0));  // A batch script.
}

TEST(ProcessPlaceTest, TorchrunsVariablesAreRead) {
  const auto place = process_place(by_torchrun(), 0);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->address, "node-7");
  EXPECT_EQ(place->port, 29500);
  EXPECT_FALSE(place->is_kept_open);
  EXPECT_FALSE(place->leads());
}

TEST(ProcessPlaceTest, TorchrunsAgentIsKnown) {
  Environment environment = by_torchrun();
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RESTART_COUNT"] = "2";
  auto place = process_place(environment, 0);
  EXPECT_TRUE(place->is_kept_open);
  EXPECT_EQ(place->attempt, "2");
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_FALSE(process_place(environment, 0)->is_kept_open);
}

TEST(ProcessPlaceTest, AListenerIsForTheLeaderAlone) {
  Environment environment = by_torchrun();
  environment[std::string(kListenerVariable)] = "5";
  EXPECT_EQ(process_place(environment, 0)->listener, -1);
  environment["RANK"] = "0";
  EXPECT_EQ(process_place(environment, 0)->listener, 5);
}

TEST(ProcessPlaceTest, WithAnotherKeyTheyMeetElsewhere) {
  Environment environment = by_torchrun();
  const std::string without = process_place(environment, 0)->attempt;
  environment[std::string(kKeyVariable)] = "one";
  const std::string with_one = process_place(environment, 0)->attempt;
  environment[std::string(kKeyVariable)] = "other";
  EXPECT_NE(with_one, without);
  EXPECT_NE(with_one, process_place(environment, 0)->attempt);
}

TEST(ProcessPlaceTest, SlurmsVariablesAreRead) {
  const auto place = process_place(by_slurm(), 0);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 6);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->num_cpus, 0);
  EXPECT_EQ(place->address, "gpu03");
  EXPECT_GE(place->port, 1024);
  Environment next = by_slurm();
  next["SLURM_STEP_ID"] = "3";
  EXPECT_NE(process_place(next, 0)->port, place->port);
  next = by_slurm();
  next["SLURM_JOB_ID"] = "78";
  EXPECT_NE(process_place(next, 0)->port, place->port);
}

TEST(ProcessPlaceTest, ASlurmStepOfOneMachineNeedsNoNames) {
  Environment environment = by_slurm();
  environment["SLURM_STEP_NUM_NODES"] = "1";
  environment["SLURM_CPUS_PER_TASK"] = "8";
  const auto place = process_place(environment, 0);
  EXPECT_EQ(place->address, "127.0.0.1");
  EXPECT_EQ(place->num_cpus, 8);
}

TEST(ProcessPlaceTest, TorchrunsVariablesGoFirst) {
  Environment environment = by_slurm();
  environment.merge(by_torchrun());
  EXPECT_EQ(process_place(environment, 0)->rank, 3);
}

TEST(ProcessPlaceTest, WithinAStepTheyAreTorchrunsTogetherAlone) {
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    Environment environment = by_slurm();
    environment[name] = "4";
    EXPECT_EQ(process_place(environment, 0)->rank, 5);
  }
  EXPECT_THAT(refusal({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is not set"));
}

TEST(ProcessPlaceTest, AStepMeetsWhereTheUserSays) {
  Environment environment = by_slurm();
  environment["MASTER_ADDR"] = "gpu03-fast";
  environment["MASTER_PORT"] = "4321";
  const auto place = process_place(environment, 0);
  EXPECT_EQ(place->address, "gpu03-fast");
  EXPECT_EQ(place->port, 4321);
  EXPECT_EQ(place->rank, 5);
  environment["MASTER_PORT"] = "none";
  EXPECT_THAT(refusal(environment), HasSubstr("MASTER_PORT = 'none'"));
}

TEST(ProcessPlaceTest, OneProcessIsNoGroup) {
  EXPECT_FALSE(process_place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0));
  EXPECT_FALSE(process_place({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, 0));
  EXPECT_FALSE(process_place(by_torchrun(), 1));  // The user says so.
}

TEST(ProcessPlaceTest, AsManyAsWereStarted) {
  EXPECT_TRUE(process_place(by_torchrun(), 4));
  EXPECT_THAT(refusal(by_torchrun(), 2),
              AllOf(HasSubstr("--processes-per-island 2"), HasSubstr("one of 4")));
}

TEST(ProcessPlaceTest, EachMissingVariableIsNamed) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Environment environment = by_torchrun();
    environment.erase(name);
    EXPECT_THAT(refusal(environment), HasSubstr(name + " is not set"));
  }
  for (const std::string name :
       {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    Environment environment = by_slurm();
    environment.erase(name);
    EXPECT_THAT(refusal(environment), HasSubstr(name + " is not set"));
  }
}

TEST(ProcessPlaceTest, BadNumbersAreNamed) {
  struct Case {
    std::string name;
    std::string value;
  };
  for (const auto& [name, value] :
       {Case{"RANK", "x"}, Case{"RANK", "-1"}, Case{"WORLD_SIZE", "0"}, Case{"WORLD_SIZE", "4 "},
        Case{"WORLD_SIZE", "99999999999999999999"}, Case{"LOCAL_RANK", "4"},
        Case{"MASTER_PORT", "0"}, Case{"MASTER_PORT", "65536"}, Case{"LOCAL_WORLD_SIZE", "5"}}) {
    Environment environment = by_torchrun();
    environment[name] = value;
    EXPECT_THAT(refusal(environment),
                AllOf(HasSubstr(name + " = '" + value + "'"), HasSubstr("whole number")));
  }
  Environment environment = by_torchrun();
  environment["RANK"] = "4";
  EXPECT_THAT(refusal(environment), HasSubstr("RANK = 4 and WORLD_SIZE = 4"));
}

TEST(ProcessPlaceTest, TheFirstHostOfAList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[01-04]"), "node01");
  EXPECT_EQ(first_host("node[7,9-12]"), "node7");
  EXPECT_EQ(first_host("rack[2-3]n[05-06]-x,other[1-2]"), "rack2n05-x");
  for (const std::string bad : {"", ",a", "a[", "a[1-2", "a[]", "a]"}) {
    EXPECT_THROW(first_host(bad), UsageError) << bad;
  }
}

}  // namespace
}  // namespace atl::run
