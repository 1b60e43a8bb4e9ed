#include "atoll/run/run_record.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string step_line(int64_t step, double computing, double waiting, int64_t began_at = 0) {
  return fmt::format(
      R"({{"step":{},"loss":null,"began_at":{},"seconds":{{"computing":{},"handling":0.5,)"
      R"("waiting":{},"validation":2,"checkpoints":1}}}})"
      "\n",
      step, began_at, computing, waiting);
}

std::string round_line(int64_t step, int64_t sent, int64_t round,
                       const std::string& members = R"("island-0","island-1")") {
  return fmt::format(
      R"({{"step":{},"sent":{},"round":{},"fragment":0,"members":[{}],"values":1000,)"
      R"("codec":"e3m0","bytes_sent":520,"bytes_received":510,"exchange_ms":100,"prepare_ms":5}})"
      "\n",
      step, sent, round, members);
}

const std::string kConfig =
    "[sync]\nmethod = \"streaming_diloco\"\nsync_every = 10\n[swarm]\nmin_replicas = 2\n";

class RunRecordTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* island : {"island-0", "island-1"}) write(island);
  }

  void write(const std::string& island,
             const std::string& steps = step_line(10, 5, 1) + step_line(20, 10, 2),
             const std::string& rounds = round_line(11, 10, 0) + round_line(20, 20, 1)) const {
    folder_.write(island + "/config.toml", kConfig);
    folder_.write(island + "/metrics.jsonl", steps);
    folder_.write(island + "/rounds.jsonl", rounds);
  }
  std::string refusal() const {
    return message_of([&] { read_run_record(folder_); });
  }

  TestFolder folder_;
};

TEST_F(RunRecordTest, ReadsWhatTheIslandsSaid) {
  const RunRecord record = read_run_record(folder_);
  EXPECT_EQ(record.config.sync.sync_every, 10);
  ASSERT_EQ(record.run.islands.size(), 2U);
  EXPECT_EQ(record.run.islands[1].name, "island-1");
  const std::vector<laws::Mark>& marks = record.run.islands[0].marks;
  ASSERT_EQ(marks.size(), 3U);
  EXPECT_EQ(marks[0].step, 0);
  EXPECT_EQ(marks[2].spent.computing_s, 10);
  EXPECT_EQ(marks[2].spent.handling_s, 0.5);
  EXPECT_EQ(marks[2].spent.waiting_s, 2);
  EXPECT_EQ(marks[2].spent.pausing_s, 3);
  ASSERT_EQ(record.run.rounds.size(), 2U);
  const laws::RecordedRound& round = record.run.rounds[0];
  EXPECT_EQ(round.sent_after, 10);
  EXPECT_TRUE(round.gathers);
  ASSERT_EQ(round.parts.size(), 2U);
  EXPECT_EQ(round.parts[1].island, 1U);
  EXPECT_EQ(round.parts[1].used_after, 11);
  EXPECT_EQ(round.parts[1].sent_bytes, 520);
  EXPECT_EQ(round.parts[1].prepare_s, 0.005);
  EXPECT_EQ(round.parts[1].exchange_s, 0.1);
}

TEST_F(RunRecordTest, ARoundScattersWhereTheMethodDoes) {
  folder_.write("island-0/config.toml", "[sync]\nmethod = \"diloco\"\n[swarm]\nmin_replicas = 3\n");
  const std::string three = R"("island-0","island-1","island-2")";
  write("island-2", step_line(20, 10, 2), round_line(20, 20, 1, three));
  for (const char* island : {"island-0", "island-1"}) {
    folder_.write(std::string(island) + "/rounds.jsonl", round_line(20, 20, 1, three));
  }
  const RunRecord record = read_run_record(folder_);
  EXPECT_FALSE(record.run.rounds[0].gathers);
  EXPECT_EQ(record.run.rounds[0].parts.size(), 3U);
}

TEST_F(RunRecordTest, OneIslandsRecordsStandForTheOthers) {
  const RunRecord record = read_run_record(folder_ / "island-0");
  EXPECT_EQ(record.islands.size(), 1U);
  ASSERT_EQ(record.run.islands.size(), 2U);
  EXPECT_EQ(record.run.rounds[1].parts.size(), 2U);
  EXPECT_EQ(measured(record.run).islands[1].computing_s, 10);
}

TEST_F(RunRecordTest, AResumedProcessCountsFromZeroAgain) {
  write("island-0", step_line(10, 5, 1) + step_line(25, 3, 0.5, 15));
  const auto record = read_run_record(folder_);
  const std::vector<laws::Mark>& marks = record.run.islands[0].marks;
  ASSERT_EQ(marks.size(), 4U);
  EXPECT_EQ(marks[2].step, 15);
  EXPECT_EQ(marks[2].spent.computing_s, 5);
  EXPECT_EQ(marks[3].spent.computing_s, 8);
  EXPECT_EQ(marks[3].spent.waiting_s, 1.5);
}

TEST_F(RunRecordTest, ALineThatIsBeingWrittenIsPassedOver) {
  write("island-0", step_line(10, 5, 1) + step_line(20, 10, 2) + R"({"step": 30, "lo)");
  EXPECT_EQ(read_run_record(folder_).run.last_step(), 20);
}

TEST_F(RunRecordTest, OfALongRunTheEndIsRead) {
  // Of 64 members 64 rounds are looked at.
  std::string members;
  for (int i = 0; i < 64; ++i) members += fmt::format("{}\"island-{}\"", i > 0 ? "," : "", i);
  std::string rounds;
  for (int64_t step = 1; step <= 104; ++step) rounds += round_line(step, step, step, members);
  for (const char* island : {"island-0", "island-1"}) {
    write(island, step_line(40, 4, 0) + step_line(104, 1e5, 5), rounds);
  }
  const RunRecord record = read_run_record(folder_);
  EXPECT_EQ(record.run.islands.size(), 64U);
  EXPECT_EQ(record.run.first_step(), 40);
  EXPECT_EQ(record.run.rounds.front().sent_after, 41);
  EXPECT_EQ(record.run.rounds.back().sent_after, 104);
}

TEST_F(RunRecordTest, RefusesWhatIsNoRun) {
  const TestFolder empty;
  EXPECT_THAT(message_of([&] { read_run_record(empty); }), HasSubstr("no run with records"));
  EXPECT_THAT(message_of([&] { read_run_record(empty / "none"); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
  std::filesystem::remove(folder_ / "island-1/rounds.jsonl");
  EXPECT_THAT(refusal(), HasSubstr("island-1/rounds.jsonl"));
  write("island-1");
  std::filesystem::remove(folder_ / "island-0/config.toml");
  EXPECT_THAT(refusal(), HasSubstr("has no config.toml"));
}

TEST_F(RunRecordTest, RefusesRunsWithoutAnExchange) {
  write("island-1", step_line(10, 1, 1), "");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("island-1"), HasSubstr("there was no round yet")));
  write("island-1", R"({"step": 30, "lo)");
  EXPECT_THAT(refusal(), HasSubstr("no whole line yet"));
  write("island-1", step_line(10, 1, 1), round_line(10, 10, 5, R"("island-1")"));
  EXPECT_THAT(refusal(), HasSubstr("no round that two islands had a part in"));
  write("island-1", step_line(10, 1, 1), round_line(30, 30, 7));
  EXPECT_THAT(refusal(), HasSubstr("no round that two islands had a part in"));
  folder_.write("island-0/config.toml", "[sync]\nmethod = \"single\"\n");
  EXPECT_THAT(refusal(), HasSubstr("a run of one island"));
  folder_.write("island-0/config.toml", kConfig + "pace = \"elastic\"\n");
  write("island-1", step_line(10, 1, 1), round_line(30, 40, 7));  // As it has them.
  EXPECT_THAT(refusal(), HasSubstr("nobody waits for an exchange"));
}

TEST_F(RunRecordTest, RefusesRoundsThatContradict) {
  const auto of_line = [this](const std::string& from, const std::string& to) {
    std::string line = round_line(11, 10, 0);
    line.replace(line.find(from), from.size(), to);
    write("island-1", step_line(10, 5, 1) + step_line(20, 10, 2), line);
    return refusal();
  };
  EXPECT_THAT(of_line("\"sent\":10", "\"sent\":12"),
              AllOf(HasSubstr("line 1"), HasSubstr("sent comes after step")));
  EXPECT_THAT(of_line("\"values\":1000", "\"values\":0"), HasSubstr("values must be above 0"));
  EXPECT_THAT(of_line(R"("island-0","island-1")", ""), HasSubstr("members is empty"));
  EXPECT_THAT(
      of_line("\"values\":1000", "\"values\":999"),
      AllOf(HasSubstr("island-1/rounds.jsonl', round 0"), HasSubstr("another island says")));
  for (const char* island : {"island-0", "island-1"}) {
    std::string line = round_line(11, 10, 0);
    line.replace(line.find("520"), 3, "0");
    write(island, step_line(10, 5, 1) + step_line(20, 10, 2), line);
  }
  EXPECT_THAT(refusal(), HasSubstr("no round of it sent a byte"));
}

TEST_F(RunRecordTest, RefusesForeignAndDamagedLines) {
  const auto of_steps = [&](const std::string& text) {
    write("island-0", text);
    return refusal();
  };
  EXPECT_THAT(of_steps("{}\n"), AllOf(HasSubstr("metrics.jsonl', line 1"), HasSubstr("no 'step'")));
  EXPECT_THAT(of_steps(step_line(10, 5, 1) + "[1]\n"), HasSubstr("line 2: it is no JSON object"));
  EXPECT_THAT(of_steps(step_line(10, 5, 1).substr(0, 30) + "\n"), HasSubstr("is no JSON object"));
  EXPECT_THAT(of_steps(R"({"step":1,"loss":2,"lr":3})"
                       "\n"),
              HasSubstr("has no 'began_at'"));
  EXPECT_THAT(of_steps(R"({"step":1,"began_at":0,"seconds":7})"
                       "\n"),
              HasSubstr("'seconds' is no JSON object"));
  EXPECT_THAT(of_steps(R"({"step":1e300,"began_at":0})"
                       "\n"),
              HasSubstr("'step' must be a number from 0"));
  EXPECT_THAT(of_steps(R"({"step":-1,"began_at":0})"
                       "\n"),
              HasSubstr("not -1"));
  EXPECT_THAT(of_steps(R"({"step":1,"began_at":0,"seconds":{"computing":null}})"
                       "\n"),
              HasSubstr("'computing' must be a number from 0 to 1e+12, not null"));
  EXPECT_THAT(of_steps(R"({"step":1,"began_at":0,"seconds":{"computing":NaN}})"
                       "\n"),
              HasSubstr("no JSON object"));
  EXPECT_THAT(of_steps(step_line(10, 5, 1) + step_line(10, 6, 1)),
              HasSubstr("step 10 does not follow"));
  EXPECT_THAT(of_steps(step_line(10, 5, 1) + step_line(12, 4, 1)),
              HasSubstr("less than those before"));
  write("island-0", step_line(10, 5, 1),
        R"({"step":1,"sent":1,"round":0,"fragment":0,"values":1,"codec":7})"
        "\n");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("rounds.jsonl', line 1"), HasSubstr("'codec' is no text")));
  std::string line = round_line(10, 10, 0);
  line.replace(line.find("e3m0"), 4, "mp3 ");
  write("island-0", step_line(10, 5, 1), line);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("island-0/rounds.jsonl, round 0"), HasSubstr("mp3")));
  write("island-0", step_line(10, 5, 1), round_line(10, 10, 0, R"("a",1)"));
  EXPECT_THAT(refusal(), HasSubstr("'members' is no text"));
  for (const char* members : {R"("a b","c")", R"("a","")"}) {
    write("island-0", step_line(10, 5, 1), round_line(10, 10, 0, members));
    EXPECT_THAT(refusal(), HasSubstr("members is no list")) << members;
  }
  write("island-0");
  folder_.write("island-0/name", "a name\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("island-0"), HasSubstr("names no island")));
}

}  // namespace
}  // namespace atl::run
