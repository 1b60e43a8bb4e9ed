#include "atoll/laws/comparable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/laws/fit.h"
#include "atoll/laws/prediction.h"
#include "atoll/laws/published.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::laws {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<laws::Run> runs_of(const std::string& text) { return parse_table(text, "t.csv").runs; }

std::vector<std::string> said(const Comparable& compared) {
  std::vector<std::string> texts;
  for (const LeftOut& one : compared.left_out) texts.push_back(left_out_text(one));
  return texts;
}

std::string refusal(const std::string& text) {
  return message_of([&] { comparable_runs(runs_of(text)); });
}

const std::string kFive =
    "params,replicas,loss,tokens\n1e6,2,4.0,2e7\n2e6,2,3.8,4e7\n4e6,2,3.61,8e7\n8e6,2,3.43,1.6e8\n"
    "16e6,2,3.26,3.2e8\n";

TEST(Comparable, ARunOnMoreTokensIsLeftOut) {
  const Comparable compared = comparable_runs(runs_of(kFive + "2e6,2,3.5,6.4e8\n"));
  EXPECT_THAT(compared.runs, SizeIs(5));
  EXPECT_THAT(
      said(compared),
      ElementsAre("line 7 is left out: 320 tokens a parameter (most runs: 20 tokens a parameter)"));
  const PowerLaws laws = fit_power_laws(loss_points(compared.runs), "loss");
  const PowerLaws alone = fit_power_laws(loss_points(runs_of(kFive)), "loss");
  EXPECT_EQ(laws.of(2)->alpha(), alone.of(2)->alpha());
}

TEST(Comparable, WhereTheOthersStandDoesNotMatter) {
  const std::string rows = "2e6,2,3.5,6.4e8\n1e6,2,3.4,3.2e8\n";
  const std::string text = "params,replicas,loss,tokens\n" + rows + kFive.substr(28);
  const Comparable compared = comparable_runs(runs_of(text));
  EXPECT_EQ(compared.kind.tokens, 20);
  EXPECT_THAT(
      said(compared),
      ElementsAre(
          "lines 2 and 3 are left out: 320 tokens a parameter (most runs: 20 tokens a parameter)"));
}

TEST(Comparable, AnotherPeriodOrMethodIsLeftOut) {
  const Comparable compared = comparable_runs(
      runs_of("params,replicas,loss,sync_every,method\n1e6,1,4.0,30,diloco\n2e6,1,3.8,30,diloco\n"
              "4e6,1,3.6,30,diloco\n4e6,1,3.55,1,diloco\n4e6,1,3.5,30,streaming_diloco\n"
              "2e6,1,3.5,30,\n1e6,0,4.1,,data_parallel\n"));
  EXPECT_THAT(compared.runs, SizeIs(4));
  EXPECT_THAT(said(compared),
              ElementsAre("line 5 is left out: sync_every 1 (most runs: sync_every 30)",
                          "line 6 is left out: method streaming_diloco (most runs: method diloco)",
                          "line 7 is left out: method not said (most runs: method diloco)"));
}

TEST(Comparable, DataParallelRunsGoWithAsManyTokens) {
  const Comparable compared = comparable_runs(
      runs_of("params,replicas,loss,sync_every,tokens\n1e6,0,4.0,,2e7\n2e6,0,3.8,,4e7\n"
              "1e6,2,4.1,30,2e7\n2e6,2,3.9,30,4e7\n2e6,2,3.95,100,4e7\n2e6,0,3.6,,1.6e8\n"
              "2e6,2,3.7,30,1.6e8\n"));
  EXPECT_THAT(compared.runs, SizeIs(4));
  EXPECT_THAT(
      said(compared),
      ElementsAre("line 6 is left out: sync_every 100 (most runs: sync_every 30)",
                  "lines 7 and 8 are left out: 80 tokens a parameter (most runs: 20 tokens a "
                  "parameter)"));
}

TEST(Comparable, ManySizesWithoutReplicasWeighNothingAgainstReplicas) {
  // Else runs of two periods would be as many, for they share the data-parallel ones.
  std::string text = "params,replicas,loss,sync_every\n";
  for (int i = 1; i <= 6; ++i) text += std::to_string(i) + "e6,0,4.0,\n";
  text += "1e6,2,4.0,30\n2e6,2,3.9,30\n3e6,2,3.8,30\n1e6,2,3.9,100\n";
  const Comparable compared = comparable_runs(runs_of(text));
  EXPECT_EQ(compared.kind.sync_every, 30);
  EXPECT_THAT(compared.runs, SizeIs(9));
}

TEST(Comparable, TokensWithinFivePercentAreOneGroup) {
  const std::string text =
      "params,replicas,loss,tokens\n1e6,1,4,19.1e6\n2e6,1,3.8,39.2e6\n4e6,1,3.6,80e6\n"
      "8e6,1,3.4,163e6\n16e6,1,3.2,340e6\n32e6,1,3,650e6\n";
  // 19.1 is near to 19.6, but not to 20.4: the largest group has 19.6, 20, 20.3 and 20.4.
  const Comparable compared = comparable_runs(runs_of(text));
  EXPECT_THAT(
      said(compared),
      ElementsAre(
          "line 2 is left out: 19.1 tokens a parameter (most runs: 20.3 tokens a parameter)",
          "line 6 is left out: 21.2 tokens a parameter (most runs: 20.3 tokens a parameter)"));
}

TEST(Comparable, OfSeveralKindsOneMustHaveMost) {
  const std::string equal =
      "params,replicas,loss,sync_every\n1e6,1,4.0,30\n2e6,1,3.8,30\n1e6,1,3.9,100\n2e6,1,3.7,100\n";
  EXPECT_THAT(refusal(equal), AllOf(HasSubstr("sync_every 30, tokens not said (lines 2 and 3)"),
                                    HasSubstr("sync_every 100, tokens not said (lines 4 and 5)"),
                                    HasSubstr("leave one kind in the table")));
  // Of as many sizes, more rows.
  EXPECT_EQ(comparable_runs(runs_of(equal + "2e6,2,3.75,100\n")).kind.sync_every, 100);
}

TEST(Comparable, FlopsOfOneSizeMustBeEqual) {
  EXPECT_THAT(refusal("params,replicas,loss,flops\n1e6,1,4,1e15\n2e6,1,3.8,4e15\n2e6,1,3.5,6e16\n"),
              AllOf(HasSubstr("lines 3 and 4 do not compare"), HasSubstr("'tokens'")));
}

TEST(Comparable, LinesOfAllSeedsAreNamed) {
  const Comparable compared = comparable_runs(
      runs_of("params,replicas,loss,sync_every,seed\n1e6,1,4,30,1\n2e6,1,3.8,30,1\n4e6,1,3.6,30,1\n"
              "4e6,1,3.5,1,1\n4e6,1,3.6,1,2\n"));
  EXPECT_THAT(said(compared),
              ElementsAre("lines 5 and 6 are left out: sync_every 1 (most runs: sync_every 30)"));
}

TEST(Comparable, ManyKindsAndLinesAreBounded) {
  std::string many = "params,replicas,loss,tokens\n";
  for (size_t i = 1; i <= kMaxKinds + 1; ++i) {
    many += "1e6,1,4," + number_text(std::pow(1.06, static_cast<double>(i))) + "\n";
  }
  EXPECT_THAT(refusal(many), HasSubstr("almost every run has another number of tokens"));
  std::string lines = "params,replicas,loss,sync_every\n";
  for (int i = 1; i <= 40; ++i) lines += std::to_string(i) + "e6,1,4,30\n";
  for (int i = 1; i <= 20; ++i) lines += std::to_string(i) + "e6,1,3,1\n";
  EXPECT_THAT(said(comparable_runs(runs_of(lines))),
              ElementsAre(HasSubstr("lines 42, 43, 44, 45, 46, 47, 48, 49 and 12 more are left")));
  std::string kinds = "params,replicas,loss,sync_every\n";
  for (size_t i = 1; i <= kMaxKinds + 1; ++i) kinds += "1e6,1,4," + std::to_string(i) + "\n";
  EXPECT_THAT(refusal(kinds), HasSubstr("more than 1000 kinds"));
}

TEST(Comparable, ThePublishedTableIsOneKind) {
  const Comparable compared = comparable_runs(published_losses());
  EXPECT_THAT(compared.left_out, IsEmpty());
  EXPECT_EQ(compared.runs.size(), published_losses().size());
  EXPECT_NEAR(compared.kind.tokens, 20, 0.5);
}

TEST(Comparable, PredictionsAreOfRunsThatCompare) {
  const Predictor mixed(runs_of(kFive + "2e6,2,3.5,6.4e8\n"));
  const Question question{.params = 2e6, .replicas = 2};
  EXPECT_EQ(mixed.predict(question).loss.value,
            Predictor(runs_of(kFive)).predict(question).loss.value);
}

}  // namespace
}  // namespace atl::laws
