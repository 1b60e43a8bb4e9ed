#include "atoll/base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl {
namespace {

using testing::HasSubstr;

struct Example {
  int64_t steps = 10;
  double lr = 0.5;
  bool tied = true;
  std::string method = "single";

  SettingList list() {
    SettingList out;
    out.section("train", "one replica");
    out.add("steps", steps, "inner steps", {.min = 1});
    out.add("lr", lr, "learning rate", {.min = 0, .max = 1});
    out.section("sync", "agreement");
    out.add("tied", tied, "whether");
    out.add("method", method, "which", {"single", "diloco"});
    return out;
  }
};

std::string refusal(const std::string& toml) {
  Example example;
  return message_of<UsageError>([&] { example.list().apply_toml(toml, "run.toml"); });
}

TEST(SettingsTest, TomlSetsWhatItNamesAndKeepsTheRest) {
  Example example;
  example.list().apply_toml("[train]\nsteps = 3\nlr = 1\n[sync]\nmethod = 'diloco'", "x");
  EXPECT_EQ(example.steps, 3);
  EXPECT_EQ(example.lr, 1.0);  // A whole number is a number.
  EXPECT_EQ(example.method, "diloco");
  EXPECT_TRUE(example.tied);
}

TEST(SettingsTest, DumpReadsBackAsTheSame) {
  Example one;
  one.lr = 1e-4;
  one.steps = 77;
  Example two;
  two.list().apply_toml(one.list().dump(true), "dump");
  EXPECT_EQ(two.lr, 1e-4);
  EXPECT_EQ(two.steps, 77);
}

TEST(SettingsTest, UnknownKeysNameTheNearest) {
  EXPECT_THAT(refusal("[train]\nstep = 3"), HasSubstr("did you mean 'train.steps'"));
  EXPECT_THAT(refusal("[train]\nmethod = 'single'"), HasSubstr("did you mean 'sync.method'"));
  EXPECT_THAT(refusal("[zzzzzzzzzzzz]\nqqqqqqqq = 3"), HasSubstr("--dump-config"));
}

TEST(SettingsTest, WrongTypesAndRangesAreNamed) {
  EXPECT_THAT(refusal("[train]\nsteps = 'x'"), HasSubstr("'train.steps' must be a whole number"));
  EXPECT_THAT(refusal("[train]\nsteps = 1.5"), HasSubstr("whole number, not 1.5"));
  EXPECT_THAT(refusal("[train]\nsteps = 0"),
              HasSubstr("run.toml: line 2: 'train.steps' must be at least 1, not 0"));
  EXPECT_THAT(refusal("[train]\nlr = nan"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refusal("[sync]\ntied = 1"), HasSubstr("true or false"));
  EXPECT_THAT(refusal("[sync]\nmethod = 'x'"), HasSubstr("one of single, diloco"));
  EXPECT_THAT(refusal("[train.steps]\nx = 1"), HasSubstr("sections do not nest"));
  EXPECT_THAT(refusal("steps = 1"), HasSubstr("inside a [section]"));
  EXPECT_THAT(refusal("[train\n"), HasSubstr("run.toml: line"));
}

TEST(SettingsTest, NothingChangesWhenAnyLineIsWrong) {
  Example example;
  EXPECT_THROW(example.list().apply_toml("[train]\nlr = 0.1\nsteps = 0", "x"), UsageError);
  EXPECT_EQ(example.lr, 0.5);
}

TEST(SettingsTest, OverridesTakeBareText) {
  Example example;
  SettingList list = example.list();
  list.apply_override("sync.method=diloco");
  list.apply_override("train.lr=1e-3");
  list.apply_override("sync.tied=false");
  EXPECT_EQ(example.method, "diloco");
  EXPECT_EQ(example.lr, 1e-3);
  EXPECT_FALSE(example.tied);
  EXPECT_THROW(list.apply_override("train.steps=many"), UsageError);
  EXPECT_THROW(list.apply_override("train.steps"), UsageError);
  EXPECT_THROW(list.apply_override("train.stepz=1"), UsageError);
}

TEST(SettingsTest, AnAssignmentReadsBackAsTheSame) {
  std::string path = "a folder/with \"quotes\"";
  double rate = 1e-9;
  bool flag = true;
  const auto list_of = [](std::string& text, double& real, bool& truth) {
    SettingList out;
    out.section("x", "");
    out.add("path", text, "");
    out.add("rate", real, "");
    out.add("flag", truth, "");
    return out;
  };
  const SettingList from = list_of(path, rate, flag);
  std::string copied_path;
  double copied_rate = 0;
  bool copied_flag = false;
  SettingList to = list_of(copied_path, copied_rate, copied_flag);
  for (const Setting& setting : from.settings()) to.apply_override(setting.assignment());
  EXPECT_EQ(copied_path, path);
  EXPECT_EQ(copied_rate, rate);
  EXPECT_EQ(copied_flag, flag);
}

}  // namespace
}  // namespace atl
