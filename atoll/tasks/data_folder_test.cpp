#include "atoll/tasks/data_folder.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class DataFolderTest : public ::testing::Test {
 protected:
  void files(std::initializer_list<const char*> names) const {
    for (const char* name : names) folder_.write(name, "x");
  }
  /// Split -> names relative to the folder.
  std::map<std::string, std::vector<std::string>> found(const std::string& config = "") const {
    std::map<std::string, std::vector<std::string>> names;
    for (const auto& [split, paths] : find_splits(folder_, config)) {
      for (const fs::path& path : paths) {
        names[split].push_back(path.lexically_relative(folder_.path()));
      }
    }
    return names;
  }
  std::string refusal(const std::string& config = "") const {
    return message_of([&] { found(config); });
  }
  void saved(const std::string& name, const std::string& split, const char* parts) const {
    folder_.write(name + "/state.json",
                  "{\"_data_files\": " + std::string(parts) + ", \"_split\": " + split + "}");
  }

  TestFolder folder_;
};

TEST_F(DataFolderTest, ASnapshotOfTheHub) {
  files({"README.md", "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
         "data/validation-00000-of-00001-1e2f3a4b.parquet", "dataset_infos.json"});
  EXPECT_THAT(found(), ElementsAre(Pair("train", ElementsAre("data/train-00000-of-00002.parquet",
                                                             "data/train-00001-of-00002.parquet")),
                                   Pair("validation", ElementsAre(HasSubstr("validation-0")))));
}

TEST_F(DataFolderTest, TheHubsCacheHasSeveralSnapshots) {
  files({"snapshots/abc/ARC-Easy/test-00000-of-00001.parquet", "snapshots/old/test.jsonl",
         "snapshots/abc/ARC-Challenge/test-00000-of-00001.parquet"});
  folder_.write("refs/main", "abc\n");
  EXPECT_THAT(found("ARC-Easy"), ElementsAre(Pair("test", ElementsAre(HasSubstr("ARC-Easy/")))));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("configs ARC-Challenge, ARC-Easy"),
                               HasSubstr("none of them (dataset_name)")));
  EXPECT_THAT(refusal("ARC"), HasSubstr("the task asks for \"ARC\""));
}

TEST_F(DataFolderTest, WhatDatasetsSaves) {
  folder_.write("dataset_dict.json", "{\"splits\": [\"train\", \"dev\"]}");
  saved("train", "\"other\"", R"([{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}])");
  saved("dev", "null", R"([{"filename": "data-0.arrow"}])");
  files({"train/cache-5.arrow", "train/dataset_info.json"});
  EXPECT_THAT(found(),
              ElementsAre(Pair("dev", ElementsAre("dev/data-0.arrow")),
                          Pair("train", ElementsAre("train/data-1.arrow", "train/data-0.arrow"))));
}

TEST_F(DataFolderTest, SplitsThatWereSavedAlone) {
  saved("winogrande_xl/validation", "\"validation\"", R"([{"filename": "data-0.arrow"}])");
  saved("winogrande_s/mine", "\"test\"", R"([{"filename": "data-0.arrow"}])");
  EXPECT_THAT(
      found("winogrande_xl"),
      ElementsAre(Pair("validation", ElementsAre("winogrande_xl/validation/data-0.arrow"))));
  EXPECT_THAT(refusal("winogrande_s"), HasSubstr("configs winogrande_s/mine, winogrande_xl"));
}

TEST_F(DataFolderTest, ASplitThatIsTheFolderItself) {
  saved(".", "\"validation\"", R"([{"filename": "data-0.arrow"}])");
  EXPECT_THAT(found("any"), ElementsAre(Pair("validation", ElementsAre("data-0.arrow"))));
  folder_.write(
      "state.json",
      R"({"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "i"}]})");
  EXPECT_THAT(refusal(), HasSubstr("save it again"));
  folder_.write("state.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("is not that of a data set"));
}

TEST_F(DataFolderTest, SeveralVersionsAreNotOneSplit) {
  files({"xl/0.0.0/0123456789abcdef01/winogrande-validation.arrow",
         "xl/0.0.0/fedcba987654321001/winogrande-validation.arrow", "3.0.0/test.jsonl",
         "2.0.0/test.jsonl"});
  EXPECT_THAT(refusal("xl"), AllOf(HasSubstr("\"validation\" in several versions"),
                                   HasSubstr("0.0.0/fedcba987654321001")));
  EXPECT_THAT(found("3.0.0"), ElementsAre(Pair("test", ElementsAre("3.0.0/test.jsonl"))));
}

TEST_F(DataFolderTest, NothingOutsideIsRead) {
  for (const char* parts :
       {R"([{"filename": "../secret.arrow"}])", R"([{"filename": "/tmp/x.arrow"}])",
        R"([{"filename": "x.jsonl"}])", R"(["x.arrow"])", R"([{}])"}) {
    saved("test", "null", parts);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("test/state.json"), HasSubstr(".arrow file beside it")));
  }
  folder_.write("test/state.json", "[1]");
  EXPECT_THAT(refusal(), HasSubstr("is not a JSON object"));
  fs::remove(folder_ / "test/state.json");
  files({"test/0000.parquet"});
  fs::create_directory_symlink(".", folder_ / "round");
  EXPECT_THAT(found(), ElementsAre(Pair("test", ElementsAre("test/0000.parquet"))));
  files({"snapshots/x/test.jsonl"});
  folder_.write("refs/main", "../..");
  EXPECT_THAT(refusal(), HasSubstr("not the name of a commit"));
}

TEST_F(DataFolderTest, SplitsWithTheirOwnNamesInTheCache) {
  files({"mnli/glue-validation_matched.arrow", "mnli/glue-validation_mismatched.arrow"});
  EXPECT_THAT(found("mnli"), ElementsAre(Pair("validation_matched", testing::SizeIs(1)),
                                         Pair("validation_mismatched", testing::SizeIs(1))));
}

TEST_F(DataFolderTest, TheCacheOfDatasets) {
  files({"default/0.0.0/0123456789abcdef0123/hellaswag-train.arrow",
         "default/0.0.0/0123456789abcdef0123/hellaswag-validation-00000-of-00002.arrow",
         "default/0.0.0/0123456789abcdef0123/hellaswag-validation-00001-of-00002.arrow",
         "default/0.0.0/0123456789abcdef0123/dataset_info.json"});
  const auto splits = found();
  EXPECT_EQ(splits.at("train").size(), 1U);
  EXPECT_EQ(splits.at("validation").size(), 2U);
}

TEST_F(DataFolderTest, FilesNamedByTheirSplit) {
  files({"train.jsonl", "my_val.jsonl.gz", "test/0000.json.zst", "test/0001.json.zst", "notes.json",
         ".hidden/test.jsonl"});
  EXPECT_THAT(found(),
              ElementsAre(Pair("test", ElementsAre("test/0000.json.zst", "test/0001.json.zst")),
                          Pair("train", ElementsAre("train.jsonl")),
                          Pair("val", ElementsAre("my_val.jsonl.gz"))));
}

TEST_F(DataFolderTest, UsualNamesStandForEachOther) {
  const SplitFiles splits{{"dev", {"a"}}, {"test", {"b"}}, {"eval", {"c"}}};
  EXPECT_THAT(*files_of(splits, "validation"), ElementsAre("a"));
  EXPECT_THAT(*files_of(splits, "test"), ElementsAre("b"));
  EXPECT_EQ(files_of(splits, "evaluation"), nullptr);  // Two could be meant.
  EXPECT_EQ(files_of(splits, "train"), nullptr);
}

TEST_F(DataFolderTest, RefusesWhatItCannotTell) {
  EXPECT_THAT(refusal(), HasSubstr("has no file whose name tells its split"));
  files({"test.jsonl", "test.parquet"});
  EXPECT_THAT(refusal(), HasSubstr("the split \"test\" in .jsonl and .parquet files"));
  EXPECT_THAT(message_of([] { find_splits("/nowhere", ""); }), HasSubstr("is not a folder"));
}

}  // namespace
}  // namespace atl::tasks
