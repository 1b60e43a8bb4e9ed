#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "atoll/base/bytes.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/random.h"
#include "atoll/testing/temporary_folder.h"

namespace atl {
namespace {

TEST(HashTest, Sha256OfAbcIsTheStandardVector) {
  EXPECT_EQ(hex(sha256(as_byte_span("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(HashTest, DigestFromHexIsTheInverseAndRefusesGarbage) {
  const Digest digest = sha256(as_byte_span("x"));
  EXPECT_EQ(digest_from_hex(hex(digest)), digest);
  EXPECT_THROW(digest_from_hex("abc"), InputError);
  EXPECT_THROW(digest_from_hex(std::string(64, 'g')), InputError);
}

TEST(HashTest, TreeDigestDependsOnEveryByte) {
  Bytes bytes(size_t{3} << 20, std::byte{1});
  const Digest before = tree_digest(bytes);
  bytes.back() = std::byte{2};
  EXPECT_NE(tree_digest(bytes), before);
}

TEST(BytesTest, ReaderReturnsWhatTheWriterPut) {
  const Bytes bytes = ByteWriter().put(uint8_t{7}).put(-5.5).put_string("atoll").take();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.get<uint8_t>(), 7);
  EXPECT_EQ(reader.get<double>(), -5.5);
  EXPECT_EQ(reader.get_string(10), "atoll");
  reader.expect_end();
}

TEST(BytesTest, ReaderRefusesToGoPastTheEnd) {
  const Bytes bytes = ByteWriter().put_string("long enough").take();
  EXPECT_THROW(ByteReader(bytes).get_string(4), InputError);
  ByteReader short_reader(std::span<const std::byte>(bytes).first(6));
  EXPECT_THROW(short_reader.get_string(100), InputError);
  ByteReader trailing(bytes);
  trailing.get<uint32_t>();
  EXPECT_THROW(trailing.expect_end(), InputError);
}

TEST(FileTest, AtomicWriteReplacesAndMissingFilesAreNamed) {
  const TestFolder folder;
  write_file_atomically(folder / "a", "one");
  write_file_atomically(folder / "a", "two");
  EXPECT_EQ(read_file(folder / "a"), "two");
  EXPECT_EQ(MappedFile(folder / "a").bytes().size(), 3U);
  EXPECT_THAT(message_of([&] { read_file(folder / "missing"); }), testing::HasSubstr("missing"));
}

TEST(FileTest, AtomicWriteFollowsLinksAndKeepsWhatIsNotAFile) {
  namespace fs = std::filesystem;
  const TestFolder folder;
  write_file_atomically(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");

  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", "through");
  char got[16] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 7);
  EXPECT_STREQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  ::close(reader);

  EXPECT_THROW(write_file_atomically(folder, "a folder"), InputError);
  fs::create_symlink("nowhere/file", folder / "dangling");
  EXPECT_THROW(write_file_atomically(folder / "dangling", "x"), InputError);
}

TEST(FileTest, WhatCannotBeWrittenIsFoundBeforeTheWork) {
  const TestFolder folder;
  require_writable(folder / "new");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  write_file_atomically(folder / "old", "kept");
  require_writable(folder / "old");
  EXPECT_EQ(read_file(folder / "old"), "kept");
  require_writable("/dev/null");
  for (const auto& path : {folder.path(), folder / "absent" / "new", folder / "old" / "new"}) {
    try {
      require_writable(path);
      ADD_FAILURE() << path;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("'" + path.string() + "'"));
    }
  }
}

TEST(RandomTest, IsAFunctionOfItsCoordinatesAlone) {
  EXPECT_EQ(random_bits(1, 2, 3), random_bits(1, 2, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 2, 4));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 3, 2));
}

TEST(RandomTest, NormalHasMeanZeroAndVarianceOne) {
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random_normal(5, 0, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

}  // namespace
}  // namespace atl
