#include "atoll/data/byte_source.h"

#include <gmock/gmock.h>

#include "atoll/data/line_reader.h"
#include "atoll/testing/packed_text.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::data {
namespace {

using ::testing::HasSubstr;

std::string sample(size_t num_lines) {
  std::string text;
  for (size_t i = 0; i < num_lines; ++i) text += "line " + std::to_string(i * i) + "\n";
  return text;
}

TEST(ByteSourceTest, UnpacksMembersAndFramesHoweverTheyArrive) {
  const std::string text = sample(50'000);
  const std::string_view whole = text;
  const std::string skippable("\x53\x2a\x4d\x18\x04\0\0\0meta", 12);
  const std::string files[] = {
      text,
      gzipped(text),
      gzipped(whole.substr(0, 1000)) + gzipped("") + gzipped(whole.substr(1000)),
      zstd_packed(text),
      zstd_packed(text, 20),
      skippable + zstd_packed(whole.substr(0, 7)) + zstd_packed("") + zstd_packed(whole.substr(7)) +
          skippable};
  for (const std::string& file : files) {
    EXPECT_EQ(all_of(source_of(file, "f")), text);
    EXPECT_EQ(all_of(source_of(file, "f", 7), 1000), text);
    EXPECT_EQ(all_of(source_of(file, "f", 1), 1), text);
  }
  EXPECT_EQ(all_of(source_of("", "f.txt")), "");
  EXPECT_EQ(all_of(source_of(gzipped(""), "f.gz")), "");
  ByteSource source = source_of(zstd_packed("abc"), "f.zst");
  EXPECT_EQ(source.compression(), Compression::kZstd);
}

TEST(ByteSourceTest, SaysWhatIsWrongAndHowFarItCouldBeRead) {
  const std::string text = sample(50'000);
  const auto failure = [](const std::string& bytes, const std::string& name) {
    return message_of([&] { all_of(source_of(bytes, name)); });
  };
  for (const auto& [packed, name] :
       {std::pair(gzipped(text), "f.gz"), std::pair(zstd_packed(text), "f.zst")}) {
    EXPECT_EQ(failure(packed, name), "");
    // However short it is cut, nothing passes for the whole.
    for (size_t size = 1; size < packed.size(); size += 1 + packed.size() / 97) {
      EXPECT_NE(failure(packed.substr(0, size), name), "") << name << " " << size;
    }
    const std::string half = failure(packed.substr(0, packed.size() / 2), name);
    EXPECT_THAT(half, HasSubstr(std::string("'") + name + "' is truncated: after its " +
                                std::to_string(packed.size() / 2) + " bytes"));
    EXPECT_THAT(half, HasSubstr("its first "));
    EXPECT_THAT(failure(packed + "garbage", name), HasSubstr("behind its end"));
    EXPECT_THAT(failure(packed + std::string(8, '\0'), name), HasSubstr("behind its end"));
    std::string damaged = packed;
    damaged[packed.size() / 2] ^= 0x55;
    EXPECT_THAT(failure(damaged, name), HasSubstr("damaged"));
    EXPECT_THAT(failure("plain", name), HasSubstr("which its name promises"));
    EXPECT_THAT(failure("", name), HasSubstr("is empty and not"));
  }
  EXPECT_THAT(failure(gzipped(text) + zstd_packed(text), "f.gz"), HasSubstr("that is not gzip"));
  EXPECT_EQ(failure(zstd_packed("x", 27), "f.zst"), "");
  EXPECT_THAT(failure(zstd_packed("x", 31), "f.zst"), HasSubstr("more than 128 MiB of memory"));
  EXPECT_THAT(message_of([] { ByteSource("/nowhere/f.gz"); }), HasSubstr("'/nowhere/f.gz'"));
}

TEST(LineReaderTest, GivesLinesWithTheirPlaces) {
  LineReader lines(source_of("ab\n\ncd", "f", 2), 3);
  std::string line;
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "ab\n");
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "\n");
  EXPECT_EQ(lines.offset(), 3);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "cd");
  EXPECT_EQ(lines.number(), 3);
  EXPECT_EQ(lines.offset(), 4);
  EXPECT_FALSE(lines.next(line));
  LineReader bounded(source_of("ab\nabc\n", "f"), 3);
  EXPECT_TRUE(bounded.next(line));
  EXPECT_THAT(message_of([&] { bounded.next(line); }),
              HasSubstr("'f' line 2 is longer than 3 bytes"));
}

}  // namespace
}  // namespace atl::data
