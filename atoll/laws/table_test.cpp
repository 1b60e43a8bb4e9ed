#include "atoll/laws/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::laws {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& text, const ReadOptions& options = {}) {
  return message_of([&] { parse_table(text, "t.csv", options); });
}

TEST(Table, ReadsColumnsInAnyOrder) {
  const Table table = parse_table(
      "\xef\xbb\xbf# a note\r\nloss, replicas,params,\"my, note\",batch\r\n\r\n"
      "2.5,0,1e6,\"a, b\",4096\n2.4,2,2000000,c,\n",
      "t.csv");
  ASSERT_EQ(table.runs.size(), 2U);
  EXPECT_EQ(table.runs[0].params, 1e6);
  EXPECT_EQ(table.runs[0].replicas, 0);
  EXPECT_EQ(table.runs[0].loss, 2.5);
  EXPECT_EQ(table.runs[0].batch, 4096);
  EXPECT_EQ(table.runs[1].batch, std::nullopt);
  EXPECT_THAT(table.ignored, ElementsAre("my, note"));
}

TEST(Table, NamesMissingColumns) {
  EXPECT_THAT(refusal("params,tokens\n1,2\n"),
              AllOf(HasSubstr("t.csv, line 1"), HasSubstr("missing columns replicas, loss")));
  EXPECT_THAT(refusal("replicas,loss,layers,hidden\n1,2,3,4\n", {.count = Count::kPapers}),
              HasSubstr("missing columns ff, vocab"));
}

TEST(Table, SaysWhichColumnsItFound) {
  EXPECT_THAT(refusal("Params, Replicas ,LOSS\n1,1,1\n"),
              AllOf(HasSubstr("missing columns params, replicas, loss"),
                    HasSubstr("has 'Params', 'Replicas', 'LOSS'"), HasSubstr("as in params,")));
  EXPECT_THAT(refusal("params;replicas;loss\n1;1;1\n"),
              HasSubstr("columns are separated by commas, not by ';'"));
  EXPECT_THAT(refusal("params\treplicas\tloss\n"), HasSubstr("by commas, not by a tab"));
}

TEST(Table, ColumnsWithoutANameMayBeEmpty) {
  const std::string rows = "1e6,1,2,,\n2e6,1,1.9,,";
  EXPECT_THAT(parse_table("params,replicas,loss,,\n" + rows, "t").ignored, testing::IsEmpty());
  EXPECT_THAT(parse_table("params,replicas,loss,,\n" + rows + "x\n", "t").ignored,
              ElementsAre("column 5, which has no name"));
}

TEST(Table, RefusesWhatHasNoRows) {
  EXPECT_THAT(refusal(""), HasSubstr("no line of column names"));
  EXPECT_THAT(refusal("# only a note\n"), HasSubstr("no line of column names"));
  EXPECT_THAT(refusal("params,replicas,loss\n"), HasSubstr("no rows"));
}

TEST(Table, RefusesNumbersThatAreNone) {
  for (const char* field : {"nan", "NaN", "inf", "-inf", "1e999", "x", "1 2", "0x10", "2,5"}) {
    EXPECT_THAT(refusal(std::string("params,replicas,loss\n1e6,1,") + field + "\n"),
                HasSubstr("line 2"))
        << field;
  }
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,1,nan\n"),
              HasSubstr("loss must be a finite number, not 'nan'"));
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,1,\n"), HasSubstr("loss is empty"));
}

TEST(Table, RefusesNumbersOutOfRange) {
  EXPECT_THAT(refusal("params,replicas,loss\n0,1,2\n"), HasSubstr("params must be more than 0"));
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,1,-2\n"), HasSubstr("loss must be more than 0"));
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,-1,2\n"), HasSubstr("replicas must be 0 or more"));
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,1.5,2\n"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("params,replicas,loss,lr\n1e6,1,2,0\n"), HasSubstr("lr must be more than 0"));
  EXPECT_THAT(refusal("params,replicas,loss\n1e300,1,2\n"), HasSubstr("between 1e-30 and 1e30"));
}

TEST(Table, RefusesRowsOfAnotherLength) {
  EXPECT_THAT(refusal("params,replicas,loss\n1,1\n"), HasSubstr("2 fields"));
  EXPECT_THAT(refusal("params,replicas,loss\n1,1,2,3\n"), HasSubstr("4 fields"));
  EXPECT_THAT(refusal("params,params,loss\n"), HasSubstr("'params' stands twice"));
}

TEST(Table, RefusesDuplicatesAndContradictions) {
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,1,2\n1e6,2,2\n1000000,1,2.0\n"),
              AllOf(HasSubstr("line 4"), HasSubstr("the same row as line 2")));
  EXPECT_THAT(refusal("params,replicas,loss\n1e6,1,2\n1e6,1,2.1\n"),
              AllOf(HasSubstr("line 3"), HasSubstr("contradicts line 2"), HasSubstr("'seed'")));
  EXPECT_EQ(refusal("params,replicas,loss,lr\n1e6,1,2,0.1\n1e6,1,2,0.2\n"), "");
}

TEST(Table, AveragesSeeds) {
  const Table table = parse_table(
      "params,replicas,loss,seed\n1e6,1,2.0,0\n1e6,1,2.2,1\n1e6,1,2.4,2\n1e6,2,3,0\n", "t.csv");
  ASSERT_EQ(table.runs.size(), 2U);
  EXPECT_DOUBLE_EQ(table.runs[0].loss, 2.2);
  EXPECT_EQ(table.runs[0].seed, std::nullopt);
  EXPECT_THAT(table.runs[0].lines, ElementsAre(2, 3, 4));
}

TEST(Table, BoundsWhatItReads) {
  std::string many = "params,replicas,loss\n";
  for (size_t i = 0; i <= kMaxRuns; ++i) many += std::to_string(i + 1) + ",1,2\n";
  EXPECT_THAT(refusal(many), HasSubstr("more than 100000 rows"));
  std::string wide = "params,replicas,loss";
  for (size_t i = 0; i < kMaxColumns; ++i) wide += ",c" + std::to_string(i);
  EXPECT_THAT(refusal(wide + "\n"), HasSubstr("more than 100 columns"));
  const TestFolder folder;
  const auto huge = folder.write("huge.csv", "");
  std::filesystem::resize_file(huge, kMaxTableBytes + 1);
  EXPECT_THAT(message_of([&] { read_table(huge); }), HasSubstr("larger than 32 MiB"));
  EXPECT_THAT(message_of([&] { read_table(folder / "none.csv"); }), HasSubstr("none.csv"));
}

TEST(Table, CountsAsThePapersDo) {
  // Table 3's 550M.
  EXPECT_EQ(papers_params(18, 1536, 6144, 32000), 558759936);
  const Table table =
      parse_table("params,replicas,loss,layers,hidden,ff,vocab\n5.5e8,1,2.6,18,1536,6144,32000\n",
                  "t.csv", {.count = Count::kPapers});
  EXPECT_EQ(table.runs[0].params, 558759936);
}

TEST(Table, BatchesMayComeInSequences) {
  const Table table =
      parse_table("params,replicas,loss,batch\n1e6,1,2,64\n", "t.csv", {.batch_unit_tokens = 2048});
  EXPECT_EQ(table.runs[0].batch, 131072);
}

TEST(Table, AUnitOfNoBatchIsRefused) {
  const TestFolder folder;
  const auto file = folder.write("t.csv", "params,replicas,loss\n1e6,1,2\n");
  EXPECT_THAT(message_of([&] { read_table(file, {.batch_unit_tokens = 2048}); }),
              HasSubstr("no batch that a batch unit could count"));
  EXPECT_EQ(read_table(file, {.batch_unit_tokens = 1}).runs.size(), 1U);
}

TEST(Table, TextReadsTheSame) {
  const std::string text =
      "params,replicas,loss,batch,outer_lr\n35258368,0,3.485,,\n1e+20,8,0.1,131072,0.6\n";
  EXPECT_EQ(table_text(parse_table(text, "t.csv").runs), text);
}

TEST(Table, AMethodIsAName) {
  const std::string text =
      "params,replicas,loss,lr,method\n1e+06,1,2,0.1,diloco\n1e+06,1,2.5,0.1,\n";
  const Table table = parse_table(text, "t.csv");
  EXPECT_EQ(table.runs[0].method, "diloco");
  EXPECT_EQ(table.runs[1].method, "");
  EXPECT_THAT(table.ignored, testing::IsEmpty());
  EXPECT_EQ(table_text(table.runs), text);
  EXPECT_THAT(refusal("params,replicas,loss,method\n1e6,1,2,a b\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("not 'a b'")));
  EXPECT_THAT(refusal("params,replicas,loss,method\n1e6,1,2," + std::string(65, 'a') + "\n"),
              HasSubstr("at most 64"));
  EXPECT_THAT(refusal("params,replicas,loss,method\n1e6,1,2,a\n1e6,1,2,a\n"),
              HasSubstr("the same row as line 2"));
}

TEST(Table, ReadsWhatFitPrinted) {
  const TestFolder folder;
  const auto file = folder.write("fit.json", R"({"table":"params,replicas,loss\n1e6,1,2\n"})");
  EXPECT_EQ(read_table(file).runs.size(), 1U);
  const auto other = folder.write("other.json", R"({"loss":2})");
  EXPECT_THAT(message_of([&] { read_table(other); }), HasSubstr("no \"table\""));
  const auto broken = folder.write("broken.json", "{\"table\":");
  EXPECT_THAT(message_of([&] { read_table(broken); }), HasSubstr("no \"table\""));
}

TEST(Table, TheBestRunOfEachSizeCounts) {
  const Table table = parse_table(
      "params,replicas,loss,lr\n2e6,1,2,0.1\n1e6,1,2.5,0.1\n1e6,1,2.4,0.2\n1e6,0,2.6,0.2\n",
      "t.csv");
  const std::vector<laws::Run> best = best_runs(table.runs);
  ASSERT_EQ(best.size(), 3U);
  EXPECT_EQ(best[0].replicas, 0);
  EXPECT_EQ(best[1].loss, 2.4);
  EXPECT_EQ(best[2].params, 2e6);
}

}  // namespace
}  // namespace atl::laws
