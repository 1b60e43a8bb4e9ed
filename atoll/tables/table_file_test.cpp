#include "atoll/tables/table_file.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tables {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMax = 1 << 20;

/// Programs stand in for atoll-tables, which is only built beside Arrow's libraries; the oracle of
/// tasks reads real files with it.
class TableFileTest : public ::testing::Test {
 protected:
  fs::path program(const std::string& script) const {
    const fs::path file = folder_.write("program", "#!/bin/sh\n" + script);
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
  std::string refusal(const std::string& script, size_t max_bytes = kMax) const {
    return message_of([&] { read_lines("a.parquet", program(script), max_bytes); });
  }

  TestFolder folder_;
};

TEST_F(TableFileTest, GivesWhatTheProgramWrites) {
  EXPECT_EQ(read_lines("-a b.parquet", program("echo \"{$1}\"; echo >&2 a warning"), kMax),
            "{-a b.parquet}\n");
  const std::string many =
      read_lines("x", program("yes | head -c 500000; yes | head -c 3000000 >&2"), kMax);
  EXPECT_EQ(many.size(), 500'000U);
}

TEST_F(TableFileTest, SaysWhyThereIsNothing) {
  EXPECT_EQ(refusal("echo '{}'; echo 'column \"x\" holds binary' >&2; exit 1"),
            "'a.parquet': column \"x\" holds binary");
  EXPECT_THAT(refusal("kill -9 $$"), HasSubstr("killed by signal 9"));
  EXPECT_THAT(refusal("exec yes", 1000), HasSubstr("over 1000 bytes when unpacked"));
  EXPECT_THAT(message_of([&] { read_lines("a.parquet", folder_ / "none", kMax); }),
              AllOf(HasSubstr("'a.parquet' needs Arrow's libraries"),
                    HasSubstr("pip install pyarrow"), HasSubstr("lines of JSON")));
}

TEST_F(TableFileTest, TheProgramLiesBesideThisOne) {
  EXPECT_EQ(table_program().filename(), "atoll-tables");
  EXPECT_TRUE(fs::exists(table_program().parent_path()));
}

}  // namespace
}  // namespace atl::tables
