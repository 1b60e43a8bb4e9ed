#include "atoll/swarm/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "atoll/testing/temporary_folder.h"

namespace atl::swarm {
namespace {

namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  void begin(Journal& journal) {
    journal.append(TermBegan{1});
    journal.append(RunBegan{"r", 0, 1, {}});
    journal.append(Admitted{{0, "a", "h:1"}});
  }

  TestFolder folder_;
  fs::path path_ = folder_ / "journal";
};

TEST_F(JournalTest, IsReadAgain) {
  Book before;
  {
    Journal journal(path_);
    EXPECT_FALSE(journal.book().has_begun());
    begin(journal);
    before = journal.book();
  }
  EXPECT_EQ(Journal(path_).book(), before);
}

TEST_F(JournalTest, BelongsToOneProcess) {
  const Journal journal(path_);
  EXPECT_THROW(Journal{path_}, InputError);
}

TEST_F(JournalTest, WhatContradictsIsNotWritten) {
  {
    Journal journal(path_);
    begin(journal);
    EXPECT_THROW(journal.append(TermBegan{1}), InputError);
    journal.append(TermBegan{2});
  }
  EXPECT_EQ(Journal(path_).book().term(), 2U);
}

TEST_F(JournalTest, ATornRecordIsCutOff) {
  {
    Journal journal(path_);
    begin(journal);
  }
  const Book before = Journal(path_).book();
  {
    Journal journal(path_);
    journal.append(TermBegan{9});
  }
  fs::resize_file(path_, fs::file_size(path_) - 3);
  EXPECT_EQ(Journal(path_).book(), before);
}

TEST_F(JournalTest, IsMadeShort) {
  Book before;
  {
    Journal journal(path_);
    begin(journal);
    const std::string address(100'000, 'x');
    for (int32_t number = 1; number <= 60; ++number) {  // 6 MB of records, of members that go.
      journal.append(Admitted{{number, "b", address}});
      journal.append(Removed{number});
    }
    before = journal.book();
  }
  EXPECT_LT(fs::file_size(path_), 5U << 20);
  EXPECT_EQ(Journal(path_).book(), before);
}

}  // namespace
}  // namespace atl::swarm
