#include "atoll/tokenizer/text_stream.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {
namespace {

TEST(TextStreamTest, HoldsBackWhatMayBecomeAStopString) {
  TextStream stream({"END", "\nUser"});
  EXPECT_EQ(stream.add("one E"), "one ");
  EXPECT_EQ(stream.add("N"), "");
  EXPECT_EQ(stream.add("Try\nUs"), "ENTry");
  EXPECT_FALSE(stream.is_stopped());
  EXPECT_EQ(stream.add("e"), "");
  EXPECT_EQ(stream.add("r: hi"), "");
  EXPECT_TRUE(stream.is_stopped());
  EXPECT_EQ(stream.add("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStreamTest, TheFirstStopStringCountsAndTheTextBeforeItIsShown) {
  TextStream stream({"b", "ab"});
  EXPECT_EQ(stream.add("xxab"), "xx");
  EXPECT_TRUE(stream.is_stopped());
  TextStream unfinished({"stop"});
  EXPECT_EQ(unfinished.add("a sto"), "a ");
  EXPECT_EQ(unfinished.finish(), "sto");
}

TEST(TextStreamTest, ShowsWholeCharacters) {
  TextStream stream;
  EXPECT_EQ(stream.add("h\xc3"), "h");
  EXPECT_EQ(stream.add("\xa9\xf0\x9f"), "é");
  EXPECT_EQ(stream.add("\x98\x80"), "😀");
  EXPECT_EQ(stream.add("\xff\xe6\x97"), "\ufffd");
  EXPECT_EQ(stream.add("a"), "\ufffda");
  EXPECT_EQ(stream.add("\xe6"), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
}

/// However bytes are cut, the text is what repairing and cutting them at once gives.
TEST(TextStreamTest, CutsDoNotMatter) {
  const std::string letters = "ab\n\xc3\xa9\xf0\x9f\x98\x80\xff";
  for (uint64_t round = 0; round < 3000; ++round) {
    const auto draw = [&](uint64_t index, size_t limit) {
      return static_cast<size_t>(random_uniform(round, 1, index) * static_cast<double>(limit));
    };
    std::string bytes;
    for (size_t i = 0; i < 24; ++i) bytes += letters[draw(i, letters.size())];
    const std::vector<std::string> stops = {"ab\n", "ba", "é"};
    size_t end = bytes.size();
    for (const std::string& stop : stops) end = std::min(end, bytes.find(stop));
    int64_t replaced = 0;
    const std::string wanted = text::repair_utf8(bytes.substr(0, end), replaced);
    TextStream stream(stops);
    std::string found;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + draw(100 + at, 4);
      found += stream.add(std::string_view(bytes).substr(at, size));
      EXPECT_EQ(wanted.substr(0, found.size()), found) << round;
      at += size;
    }
    found += stream.finish();
    EXPECT_EQ(found, wanted) << round;
    EXPECT_EQ(stream.is_stopped(), end < bytes.size());
  }
}

TEST(TextStreamTest, RefusesStopStringsThatCannotBeFound) {
  EXPECT_THROW(TextStream({""}), UsageError);
  EXPECT_THROW(TextStream({"\xff"}), UsageError);
}

}  // namespace
}  // namespace atl::tokenizer
