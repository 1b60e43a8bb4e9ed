#include "atoll/data/olmo_exchange.h"

#include <gmock/gmock.h>

#include "atoll/testing/packed_text.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OlmoExchangeTest : public ::testing::Test {
 protected:
  OlmoExchangeTest() {
    tokenizer::WordCounts words;
    words.add("the cat sat on the mat, the cat sat on the hat");
    folder_.write(
        "tokenizer.json",
        tokenizer::train_tokenizer(words, {.vocab_size = 280, .min_frequency = 2}, [](int64_t) {}));
  }
  /// A file of these ids and its table.
  template <typename T = uint16_t>
  void write(const std::vector<T>& ids, const std::string& table,
             const std::string& name = "part") const {
    folder_.write(name + ".npy",
                  {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)});
    folder_.write(name + ".csv.gz", gzipped(table));
  }
  std::string import(const std::vector<std::string>& names = {"part"},
                     TokenType type = TokenType::kU16) const {
    return message_of([&] {
      std::vector<OlmoFile> files;
      for (const std::string& name : names) files.emplace_back(folder_ / (name + ".npy"), type);
      import_olmo(files, tokenizer::Tokenizer::load(folder_ / "tokenizer.json"),
                  {.folder = folder_ / "store", .overwrite = true}, 0, [](int64_t) {});
    });
  }
  void write_good() const { write({70, 71, 0, 72, 0, 73, 74, 75, 0}, kTable); }

  static constexpr const char* kTable =
      "0,3,doc-a,web/a.json.gz,7\r\n3,5,\"doc,b\",web/b.json.gz,1\r\n5,9,doc-c,web/b.json.gz,2\r\n";
  TestFolder folder_;
};

TEST_F(OlmoExchangeTest, KeepsTokensAndWhereTheyCameFrom) {
  write_good();
  write<uint16_t>({80, 0}, "0,2\n", "more");
  ASSERT_EQ(import({"part", "more"}), "");
  const TokenStore store = TokenStore::open(folder_ / "store");
  store.verify();
  std::vector<int64_t> ids(11);
  store.read(Split::kTrain, 0, ids);
  EXPECT_THAT(ids, ::testing::ElementsAre(70, 71, 0, 72, 0, 73, 74, 75, 0, 80, 0));
  const std::vector<Document> rows = store.documents(Split::kTrain);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1].id, "doc,b");
  EXPECT_EQ(rows[1].source, "web/b.json.gz");
  EXPECT_EQ(rows[0].location, 7);
  EXPECT_EQ(rows[3].begin, 9);
}

TEST_F(OlmoExchangeTest, AStoreIsItsOwnSource) {
  write_good();
  ASSERT_EQ(import(), "");
  fs::rename(folder_ / "store", folder_ / "first");
  ASSERT_EQ(import({"first/tokens-train"}), "");
  const StoreInfo first = TokenStore::open(folder_ / "first").info();
  EXPECT_EQ(TokenStore::open(folder_ / "store").info().digest(), first.digest());
}

TEST_F(OlmoExchangeTest, ReadsFourBytesAndNumpysHeader) {
  write<uint32_t>({70, 0, 71, 0}, "0,2\n2,4\n");
  EXPECT_EQ(import({"part"}, TokenType::kU32), "");
  EXPECT_EQ(TokenStore::open(folder_ / "store").info().type, TokenType::kU32);
  const std::vector<uint32_t> ids = {70, 0, 71, 0};
  folder_.write("part.npy", format_npy_header({.type = NumberType::kU32, .num_rows = 4}) +
                                std::string(reinterpret_cast<const char*>(ids.data()), 16));
  EXPECT_EQ(import(), "");
  EXPECT_EQ(TokenStore::open(folder_ / "store").num_tokens(Split::kTrain), 4);
  folder_.write("part.npy", format_npy_header({.type = NumberType::kI64, .num_rows = 2}) +
                                std::string(16, '\0'));
  EXPECT_THAT(import(), HasSubstr("tokens are uint16 or uint32"));
}

TEST_F(OlmoExchangeTest, NamesWhatIsWrong) {
  write_good();
  fs::remove(folder_ / "part.csv.gz");
  EXPECT_THAT(import(), HasSubstr("part.csv.gz' is missing"));
  write_good();
  folder_.write("part.npy", "odd");
  EXPECT_THAT(import(), HasSubstr("3 bytes, which are no whole number of uint16 tokens"));
  write<uint16_t>({70, 9999, 0}, "0,3\n");
  EXPECT_THAT(import(), HasSubstr("part.npy' token 1 is 9999, but the vocabulary has"));
  write<uint16_t>({70, 0, 71}, "0,2\n2,3\n");
  EXPECT_THAT(import(), HasSubstr("document 2 does not end with end-of-text (0)"));
  const std::vector<uint16_t> ids = {70, 0, 71, 0};
  const auto with_table = [&](const std::string& table) {
    write<uint16_t>(ids, table);
    return import();
  };
  EXPECT_EQ(with_table("0,2\n2,4\n"), "");
  EXPECT_THAT(with_table("0,2\n2,5\n"), HasSubstr("part.csv.gz' row 2: tokens 2 to 5 reach past"));
  EXPECT_THAT(with_table("0,2\n3,4\n"), HasSubstr("leave a gap behind 2"));
  EXPECT_THAT(with_table("0,2\n1,4\n"), HasSubstr("overlap with those up to 2"));
  EXPECT_THAT(with_table("0,2\n"), HasSubstr("ends after 1 documents with 2 tokens, of 4"));
  EXPECT_THAT(with_table("0,2\n2,x\n"), HasSubstr("'x' is not a number"));
  write<uint16_t>(ids, "0,2\n2,4\n");
  folder_.write("part.csv.gz", gzipped("0,2\n2,4\n").substr(0, 20));
  EXPECT_THAT(import(), HasSubstr("part.csv.gz' is truncated"));
  write<uint32_t>({70, 0}, "0,2\n", "wide");  // Read as uint16 it has four.
  EXPECT_THAT(import({"wide"}), HasSubstr("ends after 1 documents with 2 tokens, of 4"));
}

}  // namespace
}  // namespace atl::data
