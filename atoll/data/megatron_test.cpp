#include "atoll/data/megatron.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "atoll/base/bytes.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The fields of a .idx, so that each test can spoil one.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t code = 8;
  uint64_t num_sequences = 3;
  std::vector<int32_t> sizes = {2, 0, 3};
  std::vector<int64_t> pointers = {0, 4, 4};
  std::vector<int64_t> document_starts = {0, 1, 2, 3};

  std::string text() const {
    const Bytes bytes = ByteWriter()
                            .put_bytes(as_byte_span(magic))
                            .put(version)
                            .put(code)
                            .put(num_sequences)
                            .put(uint64_t{document_starts.size()})
                            .put_bytes(std::as_bytes(std::span(sizes)))
                            .put_bytes(std::as_bytes(std::span(pointers)))
                            .put_bytes(std::as_bytes(std::span(document_starts)))
                            .take();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

std::string failure(const std::string& idx, size_t bin_bytes = 10) {
  return message_of([&] { parse_megatron_index(as_byte_span(idx), bin_bytes, "a.idx"); });
}

TEST(MegatronIndexTest, ReadsAllFields) {
  const std::string idx = Index().text();
  EXPECT_EQ(idx.size(), 34U + 3 * 12 + 4 * 8);
  const MegatronIndex index = parse_megatron_index(as_byte_span(idx), 10, "a.idx");
  EXPECT_EQ(index.type, NumberType::kU16);
  EXPECT_EQ(index.num_tokens, 5);
  EXPECT_EQ(index.num_sequences(), 3);
  EXPECT_EQ(index.num_documents(), 3);
  EXPECT_TRUE(index.is_one_to_one());
  const std::string merged = Index{.document_starts = {0, 2}}.text();
  EXPECT_FALSE(parse_megatron_index(as_byte_span(merged), 10, "a.idx").is_one_to_one());
}

TEST(MegatronIndexTest, NamesWhatIsWrong) {
  EXPECT_EQ(failure(Index().text()), "");
  EXPECT_THAT(failure(Index{.magic = {"TNTIDX\0\0\0", 9}}.text()),
              HasSubstr("'a.idx' is no Megatron index: it does not begin with MMIDIDX"));
  EXPECT_THAT(failure("MMID"), HasSubstr("(truncated)"));
  EXPECT_THAT(failure(""), HasSubstr("(truncated)"));
  EXPECT_THAT(failure(Index().text().substr(0, 20)), HasSubstr("is truncated"));
  EXPECT_THAT(failure(Index{.version = 2}.text()), HasSubstr("has version 2; read is version 1"));
  EXPECT_THAT(failure(Index{.code = 6}.text()), HasSubstr("tokens of the type 6"));
  EXPECT_THAT(failure(Index{.code = 0}.text()), HasSubstr("tokens of the type 0"));
  EXPECT_THAT(failure(Index().text() + "x"), HasSubstr("truncated or written to"));
  EXPECT_THAT(failure(Index().text().substr(0, 90)),
              HasSubstr("promises 3 sequences and 4 entries of doc_idx, but 56 bytes follow"));
  // Counts whose product with the size of an entry would wrap around.
  EXPECT_THAT(failure(Index{.num_sequences = uint64_t{1} << 62}.text()), HasSubstr("promises"));
  EXPECT_THAT(failure(Index{.num_sequences = ~uint64_t{0}}.text()), HasSubstr("promises"));
}

TEST(MegatronIndexTest, PlacesMustTileTheTokens) {
  EXPECT_THAT(failure(Index{.sizes = {2, -1, 3}}.text()), HasSubstr("sequence 1 has size -1"));
  EXPECT_THAT(
      failure(Index{.sizes = {2, 0, 4}}.text()),
      HasSubstr("sequence 2 has 4 tokens from byte 4 on, past the end of the .bin with 10"));
  EXPECT_THAT(failure(Index{.sizes = {2, 0, 0x7fffffff}}.text()), HasSubstr("past the end"));
  EXPECT_THAT(failure(Index{.pointers = {0, 4, int64_t{1} << 62}}.text()),
              HasSubstr("past the end"));
  EXPECT_THAT(failure(Index{.pointers = {-2, 4, 4}}.text()), HasSubstr("past the end"));
  EXPECT_THAT(failure(Index{.pointers = {0, 4, 2}}.text()),
              HasSubstr("sequence 2 begins at byte 2, not where the one before it ends, 4"));
  EXPECT_THAT(failure(Index().text(), 9), HasSubstr("past the end of the .bin with 9 bytes"));
  EXPECT_THAT(failure(Index().text(), 12), HasSubstr("describes 10 bytes of tokens, but the .bin "
                                                     "has 12"));
}

TEST(MegatronIndexTest, DocumentsMustAscend) {
  EXPECT_THAT(failure(Index{.document_starts = {0, 2, 1, 3}}.text()), HasSubstr("doc_idx[2] is 1"));
  EXPECT_THAT(failure(Index{.document_starts = {1, 2, 3}}.text()), HasSubstr("doc_idx[0] is 1"));
  EXPECT_THAT(failure(Index{.document_starts = {0, 4}}.text()), HasSubstr("doc_idx[1] is 4"));
  EXPECT_THAT(failure(Index{.document_starts = {}}.text()), HasSubstr("empty doc_idx"));
}

class MegatronFilesTest : public ::testing::Test {
 protected:
  std::string prefix() const { return (folder_ / "a").string(); }
  void write(NumberType type) const {
    MegatronWriter writer(prefix(), type, false);
    writer.add(std::vector<int64_t>{7, 0});
    writer.add({});
    writer.add(std::vector<int64_t>{1, 2, 3});
    writer.finish();
  }

  TestFolder folder_;
};

TEST_F(MegatronFilesTest, WritesTheBytesOfTheFormat) {
  write(NumberType::kU16);
  EXPECT_EQ(read_file(prefix() + ".idx"), Index().text());
  EXPECT_EQ(read_file(prefix() + ".bin"), std::string("\x07\0\0\0\x01\0\x02\0\x03\0", 10));
}

TEST_F(MegatronFilesTest, ReadsWhatItWritesInEveryType) {
  for (const NumberType type : {NumberType::kU8, NumberType::kI8, NumberType::kI16,
                                NumberType::kU16, NumberType::kI32, NumberType::kI64}) {
    write(type);
    const MegatronStore store = MegatronStore::open(prefix() + ".bin");
    EXPECT_EQ(store.index().type, type);
    std::vector<int64_t> ids(2);
    store.read(2, 1, ids);
    EXPECT_THAT(ids, ElementsAre(2, 3));
    store.require_ids_below(8);
    EXPECT_THAT(message_of([&] { store.require_ids_below(7); }),
                HasSubstr("a.bin' token 0 is 7, but the vocabulary has 7"));
    fs::remove(prefix() + ".idx");
    fs::remove(prefix() + ".bin");
  }
}

TEST_F(MegatronFilesTest, NegativeIdsAreNoTokens) {
  MegatronWriter writer(prefix(), NumberType::kI32, false);
  writer.add(std::vector<int64_t>{5, -1});
  writer.finish();
  EXPECT_THAT(message_of([&] { MegatronStore::open(prefix()).require_ids_below(100); }),
              HasSubstr("token 1 is -1"));
}

TEST_F(MegatronFilesTest, LeavesNothingBehindUnlessItFinishes) {
  {
    MegatronWriter writer(prefix(), NumberType::kU16, false);
    EXPECT_THAT(message_of([&] { writer.add(std::vector<int64_t>{1, 65536}); }),
                HasSubstr("token 65536 of document 0 does not fit uint16"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  write(NumberType::kU16);
  EXPECT_THROW(MegatronWriter(prefix(), NumberType::kU16, false), UsageError);
  for (const char* name : {"", "d/", ".idx/"}) {
    EXPECT_THROW(MegatronWriter(name, NumberType::kU16, false), UsageError) << name;
  }
  fs::create_directories(folder_ / "b.bin");
  EXPECT_THROW(MegatronWriter((folder_ / "b").string(), NumberType::kU16, true), UsageError);
  EXPECT_TRUE(fs::is_directory(folder_ / "b.bin"));
}

TEST_F(MegatronFilesTest, NamesTheMissingFile) {
  write(NumberType::kU16);
  fs::remove(prefix() + ".bin");
  EXPECT_THAT(message_of([&] { MegatronStore::open(prefix()); }),
              HasSubstr("a.bin': No such file"));
}

}  // namespace
}  // namespace atl::data
