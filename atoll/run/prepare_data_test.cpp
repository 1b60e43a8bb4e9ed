#include "atoll/run/prepare_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/data/mixture.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PrepareDataTest : public testing::Test {
 protected:
  PrepareDataTest() {
    config_.data.path = (folder_ / "text").string();
    config_.data.vocab_size = 300;
    config_.train.sequence_length = 32;
    fs::create_directories(folder_ / "text");
    write_text("the cat sat on the mat and the dog sat on the log\n");
    fs::create_directories(folder_ / "out");
  }
  void write_text(const std::string& line) {
    for (int i = 0; i < 40; ++i) {
      std::string text = fmt::format("{}\n", i);  // Equal documents would be on one side.
      for (int j = 0; j < 20; ++j) text += line;
      folder_.write(fmt::format("text/{}.txt", i), text);
    }
  }
  std::string digest() const {
    return data::Mixture::open(prepare_store(config_, folder_ / "out", {}, SystemClock())).digest();
  }
  bool is_there() const { return find_store(config_, folder_ / "out", {}).has_value(); }

  TestFolder folder_;
  RunConfig config_;
};

TEST_F(PrepareDataTest, WhatIsThereIsUsedAgain) {
  EXPECT_FALSE(is_there());
  const std::string before = digest();
  EXPECT_TRUE(is_there());
  const auto packed = fs::last_write_time(folder_ / "out" / "data" / "store.json");
  EXPECT_EQ(digest(), before);
  EXPECT_EQ(fs::last_write_time(folder_ / "out" / "data" / "store.json"), packed);
}

TEST_F(PrepareDataTest, ATextThatChangedIsPackedAgain) {
  const std::string before = digest();
  write_text("the dog sat on the mat and the cat sat on the log\n");  // As long as it was.
  EXPECT_FALSE(is_there());
  EXPECT_NE(digest(), before);
  config_.data.vocab_size = 290;
  EXPECT_FALSE(is_there());
}

TEST_F(PrepareDataTest, ATextThatIsGoneIsNoLongerNeeded) {
  const std::string before = digest();
  fs::remove_all(folder_ / "text");
  EXPECT_EQ(digest(), before);
  config_.data.vocab_size = 290;
  EXPECT_THAT(message_of([&] { digest(); }), HasSubstr("text"));
}

}  // namespace
}  // namespace atl::run
