#include "atoll/base/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event_log.h"
#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Arrived {
  static constexpr const char* kKind = "arrived";
  std::string island;
  int64_t round = 0;
  std::vector<std::string> others;
  std::optional<double> share;
  bool is_new = false;
  void visit(auto&& field) const {
    field("island", island), field("round", round), field("others", others);
    field("share", share), field("new", is_new);
  }
  std::string sentence() const { return "'" + island + "' arrived"; }
};

TEST(EventTest, IsALineOfItsFieldsInOrder) {
  const Arrived event{.island = "a", .round = 3, .others = {"b", "c"}, .share = 0.5};
  EXPECT_EQ(to_json(event, 12.25),
            R"({"time":12.25,"kind":"arrived","island":"a","round":3,"others":["b","c"],)"
            R"("share":0.5,"new":false,"sentence":"'a' arrived"})");
}

TEST(EventTest, WhatIsNotKnownIsLeftOutAndOddTextFits) {
  const std::string line = to_json(Arrived{.island = "\xff\n\""}, 1);
  EXPECT_THAT(line, testing::Not(HasSubstr("share")));
  EXPECT_THAT(line, HasSubstr("\xef\xbf\xbd\\n\\\""));
  EXPECT_THAT(line, testing::Not(HasSubstr("\n")));
}

class EventLogTest : public testing::Test {
 protected:
  EventLog log() {
    return EventLog(folder_, [this](const std::string& sentence) { told_.push_back(sentence); });
  }
  std::string text() const { return read_file(file_); }
  static std::vector<std::string> sentences(EventReader& reader) {
    std::vector<std::string> out;
    while (const auto event = reader.next()) out.push_back(event->sentence);
    return out;
  }
  std::vector<std::string> sentences() const {
    EventReader reader(file_);
    return sentences(reader);
  }

  TestFolder folder_;
  std::filesystem::path file_ = folder_ / kEventsFile;
  std::vector<std::string> told_;
};

TEST_F(EventLogTest, KeepsALineForEachEventAndTellsItsSentence) {
  const double before = wall_time();
  {
    EventLog events = log();
    events.add(Arrived{.island = "a"});
    events.sink()(Arrived{.island = "b", .round = 7});
  }
  log().add(Arrived{.island = "c"});
  EXPECT_THAT(told_, ElementsAre("'a' arrived", "'b' arrived", "'c' arrived"));
  EventReader reader(file_);
  const auto first = reader.next();
  const auto second = reader.next();
  const auto third = reader.next();
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(first->kind, "arrived");
  EXPECT_THAT(second->line, HasSubstr(R"("island":"b","round":7)"));
  EXPECT_EQ(first->line + "\n" + second->line + "\n" + third->line + "\n", text());
  EXPECT_GE(first->time, before);
  EXPECT_LE(third->time, wall_time());
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST_F(EventLogTest, KeepsWhatOthersTell) {
  log().keep(Arrived{.island = "a"});
  EXPECT_THAT(told_, ElementsAre());
  EXPECT_THAT(sentences(), ElementsAre("'a' arrived"));
}

TEST_F(EventLogTest, WithoutAFolderOnlyTells) {
  EventLog("", [this](const std::string& sentence) {
    told_.push_back(sentence);
  }).add(Arrived{.island = "a"});
  EXPECT_THAT(told_, ElementsAre("'a' arrived"));
}

TEST_F(EventLogTest, ALineThatAKillHasTornDamagesNoOther) {
  log().add(Arrived{.island = "a"});
  const std::string whole = text();
  std::ofstream(file_, std::ios::app) << whole.substr(0, whole.size() / 2);
  EXPECT_THAT(sentences(), ElementsAre("'a' arrived"));
  log().add(Arrived{.island = "b"});
  EXPECT_THAT(sentences(), ElementsAre("'a' arrived", "'b' arrived"));
}

TEST_F(EventLogTest, ReaderPassesOverWhatIsNoEvent) {
  folder_.write(kEventsFile,
                "\n[1]\n{\"time\":1}\n{\"time\":\"x\",\"kind\":\"k\",\"sentence\":\"s\"}\n"
                "\x80{}\n{\"time\":2,\"kind\":\"k\",\"sentence\":\"fine\"}\n");
  EXPECT_THAT(sentences(), ElementsAre("fine"));
}

TEST_F(EventLogTest, ReaderGoesOnWithWhatIsAdded) {
  EventReader reader(file_);
  EXPECT_EQ(reader.next(), std::nullopt);  // There is no file yet.
  EventLog events = log();
  events.add(Arrived{.island = "a"});
  EXPECT_THAT(sentences(reader), ElementsAre("'a' arrived"));
  const std::string line = to_json(Arrived{.island = "b"}, 1);
  std::ofstream(file_, std::ios::app) << line.substr(0, 20);
  EXPECT_THAT(sentences(reader), ElementsAre());
  std::ofstream(file_, std::ios::app) << line.substr(20) << "\n";
  events.add(Arrived{.island = "c"});
  EXPECT_THAT(sentences(reader), ElementsAre("'b' arrived", "'c' arrived"));
}

TEST_F(EventLogTest, ManyMayAddToOneFile) {
  const auto quiet = [](const std::string&) {};
  EventLog first(folder_, quiet);
  EventLog second(folder_, quiet);
  constexpr int kEach = 200;
  {
    std::vector<std::jthread> threads;
    for (EventLog* events : {&first, &second, &first}) {
      threads.emplace_back([events] {
        for (int i = 0; i < kEach; ++i) events->add(Arrived{.island = std::string(300, 'x')});
      });
    }
  }
  EXPECT_EQ(sentences().size(), 3U * kEach);
  const std::string whole = text();
  EXPECT_EQ(std::ranges::count(whole, '\n'), 3 * kEach);
}

TEST_F(EventLogTest, ADiskThatTakesNothingIsReportedOnce) {
  std::filesystem::create_symlink("/dev/full", file_);
  {
    EventLog events = log();
    events.add(Arrived{.island = "a"});
    events.add(Arrived{.island = "b"});
  }
  EXPECT_THAT(told_, ElementsAre(EndsWith("does not take events: No space left on device"),
                                 "'a' arrived", "'b' arrived"));
  EXPECT_THAT(told_[0], StartsWith("warning: '" + file_.string()));
}

TEST_F(EventLogTest, AFolderThatIsNoneIsReportedOnce) {
  EventLog events(folder_ / "none",
                  [this](const std::string& sentence) { told_.push_back(sentence); });
  events.add(Arrived{.island = "a"});
  EXPECT_THAT(told_, ElementsAre(EndsWith("No such file or directory"), "'a' arrived"));
}

}  // namespace
}  // namespace atl
