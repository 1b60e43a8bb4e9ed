#include "atoll/data/token_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>

#include "atoll/base/random.h"
#include "atoll/data/batches.h"
#include "atoll/data/document_table.h"
#include "atoll/data/pack.h"
#include "atoll/data/sample_order.h"
#include "atoll/data/store_files.h"
#include "atoll/testing/packed_text.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SampleOrderTest, PassCountsFromZeroAndOlmosEpochFromOne) {
  EXPECT_EQ(sample_order(6000, 197, 1000), shuffled_range(6198, 1000));
  EXPECT_NE(sample_order(6000, 198, 1000), shuffled_range(6198, 1000));
  EXPECT_TRUE(sample_order(1, 0, 0).empty());
  // The largest seed plus one needs a third 32-bit word of entropy, as a Python integer has.
  EXPECT_EQ(sample_order(~uint64_t{0}, 0, 4).size(), 4U);
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    tokenizer::WordCounts words;
    words.add("the cat sat on the mat, the cat sat on the hat");
    folder_.write(
        "tokenizer.json",
        tokenizer::train_tokenizer(words, {.vocab_size = 280, .min_frequency = 2}, [](int64_t) {}));
  }

  fs::path write(const std::string& name, std::string_view text) const {
    return folder_.write(name, text);
  }
  tokenizer::Tokenizer tokenizer() const {
    return tokenizer::Tokenizer::load(folder_ / "tokenizer.json");
  }
  PackReport pack_into(const std::string& store, const std::string& input,
                       const PackOptions& options) const {
    const Corpus corpus({.inputs = {(folder_ / input).string()}});
    return pack(corpus, tokenizer(), folder_ / store, options, [](const PackProgress&) {});
  }
  /// Forty documents of a few tokens.
  fs::path write_sample() const {
    for (int i = 10; i < 50; ++i) {
      write("tree/f" + std::to_string(i) + ".txt", "the cat sat on " + std::to_string(i) + "\n");
    }
    return folder_ / "tree";
  }

  TestFolder folder_;
};

TEST_F(StoreTest, PacksATreeInSortedOrderAndReadsItBack) {
  write_sample();
  write("tree/.hidden/x.txt", "hidden");
  write("tree/binary.dat", std::string("a\0b", 3));
  const PackReport report = pack_into("store", "tree", {.validation_share = 0.3});
  const TokenStore store = TokenStore::open(folder_ / "store");
  store.verify();
  EXPECT_EQ(store.info().train.num_documents + store.info().validation.num_documents, 40);
  EXPECT_GT(store.info().validation.num_documents, 2);
  EXPECT_EQ(store.info().digest(), report.info.digest());

  const tokenizer::Tokenizer tokens = tokenizer();
  std::map<std::string, std::string> texts;
  for (const Split split : kSplits) {
    std::string previous;
    for (const Document& document : store.documents(split)) {
      std::vector<int64_t> ids(static_cast<size_t>(document.end - document.begin));
      store.read(split, document.begin, ids);
      EXPECT_EQ(ids.back(), tokens.end_of_text());
      ids.pop_back();
      const std::string text = tokens.decode_part(ids);
      EXPECT_EQ(split_of(text, 0.3), split);
      EXPECT_LT(previous, document.id);
      previous = document.id;
      texts[document.id] = text;
    }
  }
  EXPECT_EQ(texts.size(), 40U);
  EXPECT_EQ(texts.at("f17.txt"), "the cat sat on 17\n");
  EXPECT_FALSE(fs::exists(folder_ / "store.tmp"));
}

TEST_F(StoreTest, VerifiesWhatATokenizerDoesNotKeep) {
  std::string json = read_file(folder_ / "tokenizer.json");
  const std::string none = "\"normalizer\": null";
  json.replace(json.find(none), none.size(), R"("normalizer": {"type": "NFC"})");
  write("tokenizer.json", json);
  for (int i = 10; i < 50; ++i) {
    write("tree/f" + std::to_string(i) + ".txt", "the cafe\u0301 " + std::to_string(i) + "\n");
  }
  pack_into("store", "tree", {.validation_share = 0.3});
  const TokenStore store = TokenStore::open(folder_ / "store");
  EXPECT_NO_THROW(store.verify());
  EXPECT_EQ(store.info().train.text_bytes + store.info().validation.text_bytes, 40 * 14);
}

TEST_F(StoreTest, PacksTheSameBytesTwice) {
  write_sample();
  pack_into("one", "tree", {});
  pack_into("two", "tree", {});
  for (const char* name : {"tokens-train.npy", "tokens-train.csv.gz", "tokens-validation.npy",
                           "store.json", "tokenizer.json"}) {
    EXPECT_EQ(read_file(folder_ / "one" / name), read_file(folder_ / "two" / name)) << name;
  }
}

TEST_F(StoreTest, ADocumentCannotForgeItsEnd) {
  write("a.jsonl", R"({"text": "the<|endoftext|>cat", "id": "x,\"y\""})"
                   "\n\n"
                   R"({"text": ""})"
                   "\n"
                   R"({"text": "mat"})");
  const PackReport report = pack_into("store", "a.jsonl", {.validation_share = 0});
  EXPECT_EQ(report.info.train.num_documents, 2);
  const TokenStore store = TokenStore::open(folder_ / "store");
  store.verify();
  const std::vector<Document> documents = store.documents(Split::kTrain);
  EXPECT_EQ(documents[0].id, "x,\"y\"");
  EXPECT_EQ(documents[1].location, 4);
  std::vector<int64_t> ids(static_cast<size_t>(store.num_tokens(Split::kTrain)));
  store.read(Split::kTrain, 0, ids);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 2);
}

TEST_F(StoreTest, CutsTextFilesAtMarksOrAtLineEnds) {
  write("marked.txt", "one\ntwo\n<|endoftext|>\nthree\n<|endoftext|>\n");
  const auto pieces = [&](const std::string& name, int64_t document_bytes) {
    std::vector<std::string> texts;
    const Corpus corpus({.inputs = {(folder_ / name).string()}, .document_bytes = document_bytes});
    corpus.for_each(
        [&](const CorpusDocument& document, int64_t) { texts.push_back(document.text); });
    return texts;
  };
  EXPECT_THAT(pieces("marked.txt", 3), ElementsAre("one\ntwo\n", "three\n"));
  write("plain.txt", "one\ntwo\nthree\nfour");
  EXPECT_THAT(pieces("plain.txt", 5), ElementsAre("one\ntwo\n", "three\n", "four"));
  EXPECT_THAT(pieces("plain.txt", 100), ElementsAre("one\ntwo\nthree\nfour"));
}

TEST_F(StoreTest, WideVocabulariesUseFourBytes) {
  write_sample();
  // The same vocabulary with a token far above: ids no longer fit two bytes.
  std::string json = read_file(folder_ / "tokenizer.json");
  const std::string vocabulary = "\"vocab\": {";
  json.insert(json.find(vocabulary) + vocabulary.size(), R"("<|far|>": 70000,)");
  std::ofstream(folder_ / "tokenizer.json") << json;
  pack_into("store", "tree", {});
  const TokenStore store = TokenStore::open(folder_ / "store");
  store.verify();
  EXPECT_EQ(store.info().type, TokenType::kU32);
  EXPECT_EQ(store.info().vocab_size, 70001);
}

TEST_F(StoreTest, NamesWhatIsWrongWithTheInput) {
  const auto failure = [&](const std::string& input) {
    return message_of([&] { pack_into("store", input, {}); });
  };
  EXPECT_THAT(failure("nothing"), HasSubstr("No such file"));
  write("empty.txt", "");
  EXPECT_THAT(failure("empty.txt"), HasSubstr("the corpus is empty"));
  fs::create_directories(folder_ / "bare");
  EXPECT_THAT(failure("bare"), HasSubstr("no text files in"));
  write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
  EXPECT_THAT(failure("broken.jsonl"), HasSubstr("broken.jsonl' line 2: not valid JSON"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(failure("pipe"), HasSubstr("neither a regular file nor a folder"));
  write("field.jsonl", "{\"text\": \"a\"}\n\n{\"body\": \"b\"}\n");
  EXPECT_THAT(failure("field.jsonl"), HasSubstr("line 3: no text in the field \"text\""));
  write("list.jsonl", "[1]\n");
  EXPECT_THAT(failure("list.jsonl"), HasSubstr("line 1: no text"));
  write("one.txt", "the cat");
  EXPECT_THAT(message_of([&] { pack_into("store", "one.txt", {.validation_share = 0.9999}); }),
              HasSubstr("lower the validation share"));
  EXPECT_THROW(pack_into("store", "one.txt", {.validation_share = 1}), UsageError);
  // Nothing is left behind by any of these.
  EXPECT_FALSE(fs::exists(folder_ / "store"));
  EXPECT_FALSE(fs::exists(folder_ / "store.tmp"));
}

TEST_F(StoreTest, AFullDiskLeavesTheOldStoreAndNothingElse) {
  write_sample();
  pack_into("store", "tree", {});
  std::signal(SIGXFSZ, SIG_IGN);  // Writes past the limit fail, as on a full disk.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tiny{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  const std::string message = message_of([&] { pack_into("store", "tree", {.overwrite = true}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(message, HasSubstr("cannot write"));
  EXPECT_FALSE(fs::exists(folder_ / "store.tmp"));
  TokenStore::open(folder_ / "store").verify();
}

TEST_F(StoreTest, OverwritesOnlyStoresAndOnlyWhenAsked) {
  write_sample();
  pack_into("store", "tree", {});
  EXPECT_THROW(pack_into("store", "tree", {}), UsageError);
  pack_into("store", "tree", {.overwrite = true});
  TokenStore::open(folder_ / "store").verify();
  EXPECT_FALSE(fs::exists(folder_ / "store.old"));
  write("mine/thesis.txt", "irreplaceable");
  EXPECT_THROW(pack_into("mine", "tree", {.overwrite = true}), UsageError);
  EXPECT_TRUE(fs::exists(folder_ / "mine" / "thesis.txt"));
}

TEST_F(StoreTest, NamesWhatIsWrongWithAStore) {
  write_sample();
  const auto damaged = [&](const auto& damage) {
    pack_into("store", "tree", {.overwrite = true});
    damage(folder_ / "store");
    return message_of([&] { TokenStore::open(folder_ / "store").verify(); });
  };
  EXPECT_THAT(damaged([](const fs::path&) {}), "");
  EXPECT_THAT(damaged([](const fs::path& store) {
                fs::resize_file(store / "tokens-train.npy",
                                fs::file_size(store / "tokens-train.npy") - 2);
              }),
              ::testing::AllOf(HasSubstr("tokens-train.npy"), HasSubstr("truncated")));
  EXPECT_THAT(damaged([](const fs::path& store) { fs::remove(store / "tokens-validation.npy"); }),
              HasSubstr("tokens-validation.npy"));
  EXPECT_THAT(damaged([](const fs::path& store) { fs::remove(store / "tokens-train.csv.gz"); }),
              HasSubstr("tokens-train.csv.gz' is missing"));
  EXPECT_THAT(damaged([](const fs::path& store) {
                std::fstream file(store / "tokens-train.npy", std::ios::in | std::ios::out);
                file.put('\x01').put('\x7f');
              }),
              HasSubstr("but the vocabulary has"));
  EXPECT_THAT(damaged([](const fs::path& store) {
                std::fstream file(store / "tokens-train.npy", std::ios::in | std::ios::out);
                file.put('\x05').put('\0');
              }),
              HasSubstr("tokens-train.npy' is damaged"));
  EXPECT_THAT(
      damaged([](const fs::path& store) { fs::resize_file(store / "tokens-train.csv.gz", 40); }),
      HasSubstr("tokens-train.csv.gz"));
  EXPECT_THAT(damaged([](const fs::path& store) {
                std::ofstream(store / "tokenizer.json", std::ios::app) << " ";
              }),
              HasSubstr("not the tokenizer this store was packed with"));
  EXPECT_THAT(damaged([](const fs::path& store) { std::ofstream(store / "store.json") << "{"; }),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(damaged([](const fs::path& store) { fs::remove(store / "store.json"); }),
              HasSubstr("is not a token store"));
}

TEST_F(StoreTest, VerifyFindsEditsThatLeaveTheDigestAsItWas) {
  write_sample();
  pack_into("store", "tree", {.validation_share = 0.25});
  const fs::path file = folder_ / "store" / "store.json";
  const std::string good = read_file(file);
  const auto fault_after = [&](const std::string& key, const std::string& value) {
    std::string edited = good;
    const size_t begin = edited.find("\"" + key + "\": ") + key.size() + 4;
    edited.replace(begin, edited.find(',', begin) - begin, value);
    std::ofstream(file) << edited;
    return message_of([&] { TokenStore::open(folder_ / "store").verify(); });
  };
  EXPECT_EQ(fault_after("validation_share", "0.25"), "");
  EXPECT_THAT(fault_after("text_bytes", "1"), HasSubstr("train.text_bytes is 1"));
  EXPECT_THAT(fault_after("end_of_text", "5"), HasSubstr("end_of_text is 5"));
  EXPECT_THAT(fault_after("validation_share", "0.9"), HasSubstr("validation share of 0.9"));
  std::ofstream(file) << good;
  std::ofstream(folder_ / "store" / "tokens-train.csv.gz", std::ios::app) << "garbage";
  EXPECT_THAT(message_of([&] { TokenStore::open(folder_ / "store").verify(); }),
              HasSubstr("behind its end"));
}

TEST_F(StoreTest, BadUtf8IsReplacedBeforeAnythingIsCounted) {
  write("a.txt", "the cat \xff\xe2\x82 sat");
  const PackReport report = pack_into("store", "a.txt", {.validation_share = 0});
  EXPECT_EQ(report.num_replaced, 2);
  const TokenStore store = TokenStore::open(folder_ / "store");
  EXPECT_EQ(store.info().train.text_bytes, 18);  // U+FFFD has three bytes.
  store.verify();
}

TEST_F(StoreTest, OverwritingALinkKeepsTheLink) {
  write_sample();
  pack_into("real/store", "tree", {});
  fs::create_directory_symlink(folder_ / "real/store", folder_ / "link");
  pack_into("link", "tree", {.validation_share = 0.5, .overwrite = true});
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(TokenStore::open(folder_ / "real/store").info().validation_share, 0.5);
  fs::create_directory_symlink(folder_ / "nowhere", folder_ / "dangling");
  EXPECT_THAT(message_of([&] { pack_into("dangling", "tree", {}); }), HasSubstr("leads nowhere"));
}

TEST_F(StoreTest, EditedDescriptionsAndForeignTokenizersAreRefused) {
  write_sample();
  pack_into("store", "tree", {});
  const TokenStore store = TokenStore::open(folder_ / "store");
  store.require_tokenizer(tokenizer());
  std::string json = read_file(folder_ / "tokenizer.json") + "\n";
  EXPECT_THAT(
      message_of([&] { store.require_tokenizer(tokenizer::Tokenizer::from_json(json, "other")); }),
      HasSubstr("was packed with another tokenizer"));
  std::string description = read_file(folder_ / "store" / "store.json");
  const size_t at = description.find("\"vocab_size\": ");
  description.insert(at + 14, "1");
  EXPECT_THAT(message_of([&] { parse_store_info(description, "s"); }), HasSubstr("was edited"));
  EXPECT_THAT(message_of([&] { parse_store_info("{\"format\": 3}", "s"); }),
              HasSubstr("\"format\" must be \"atoll token store\""));
}

TEST_F(StoreTest, BatchesAreOlmosWholeBatchesOfEachPass) {
  write_sample();
  pack_into("store", "tree", {.validation_share = 0});
  const TokenStore store = TokenStore::open(folder_ / "store");
  const int64_t length = 7;
  const int64_t rows = store.num_tokens(Split::kTrain) / length;
  ASSERT_GT(rows, 20);
  const Batches batches(store, Split::kTrain,
                        {.sequence_length = length, .batch_rows = 4, .seed = 9});
  EXPECT_EQ(batches.num_rows(), rows);
  EXPECT_EQ(batches.steps_per_pass(), rows / 4);
  for (const int64_t pass : {1, 0}) {  // In any order.
    const std::vector<uint32_t> order = sample_order(9, pass, rows);
    for (int64_t step = 0; step < rows / 4; ++step) {
      const std::vector<int64_t> want(order.begin() + 4 * step, order.begin() + 4 * step + 4);
      EXPECT_EQ(batches.rows(pass * (rows / 4) + step), want);
    }
  }

  const std::vector<int64_t> picked = {2, 0};
  std::vector<int64_t> inputs(14);
  std::vector<int64_t> targets(14);
  batches.fill(picked, inputs, targets);
  std::vector<int64_t> want(static_cast<size_t>(length));
  store.read(Split::kTrain, 2 * length, want);
  EXPECT_TRUE(std::equal(want.begin(), want.end(), inputs.begin()));
  EXPECT_TRUE(std::equal(want.begin() + 1, want.end(), targets.begin()));
  EXPECT_EQ(targets[6], kIgnoredTarget);
  EXPECT_EQ(targets[13], kIgnoredTarget);
}

TEST_F(StoreTest, RowsToBeFilledComeFromTheDiskMeanwhile) {
  std::string text;  // Which needs a token for each byte.
  while (text.size() < 16'000'000) text += "xq zv\n";
  write("long.txt", text);
  pack_into("store", "long.txt", {.validation_share = 0});
  const fs::path file = folder_ / "store" / tokens_file_name(Split::kTrain);
  const int opened = ::open(file.c_str(), O_RDWR);
  ASSERT_EQ(::fsync(opened), 0);
  ASSERT_EQ(::posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(opened);

  // It looks at both ends, and the system then reads some megabytes around them.
  const TokenStore store = TokenStore::open(folder_ / "store");
  const Batches batches(store, Split::kTrain, {.sequence_length = 64, .batch_rows = 4});
  const MappedFile mapped(file);
  const int64_t row = batches.num_rows() / 2;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t at = static_cast<size_t>(row) * 64 * token_bytes(store.info().type) / page * page;
  const auto is_in_memory = [&] {
    unsigned char state = 0;
    EXPECT_EQ(::mincore(const_cast<std::byte*>(mapped.bytes().data()) + at, 1, &state), 0);
    return (state & 1) != 0;
  };
  if (is_in_memory()) GTEST_SKIP() << "this file system keeps its files in memory";
  batches.will_fill(std::vector<int64_t>{row});
  for (int i = 0; i < 1000 && !is_in_memory(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(is_in_memory());
}

TEST_F(StoreTest, BatchesRefuseTooLittleText) {
  write("tree/a.txt", "the cat");
  pack_into("store", "tree", {.validation_share = 0});
  const TokenStore store = TokenStore::open(folder_ / "store");
  const auto failure = [&](Split split, BatchOptions options) {
    return message_of([&] { Batches(store, split, options).rows(0); });
  };
  EXPECT_THAT(failure(Split::kTrain, {.sequence_length = 512, .batch_rows = 1}),
              HasSubstr("smaller than one row"));
  EXPECT_THAT(failure(Split::kValidation, {.sequence_length = 2, .batch_rows = 1}),
              HasSubstr("the validation part of"));
  EXPECT_THAT(failure(Split::kTrain, {.sequence_length = 2, .batch_rows = 99}),
              HasSubstr("smaller than one global batch"));
  EXPECT_THROW(Batches(store, Split::kTrain, {.sequence_length = 1, .batch_rows = 1}), UsageError);
  EXPECT_THROW(Batches(store, Split::kTrain, {.sequence_length = 8, .batch_rows = 0}), UsageError);
}

/// The rows of a table that is not compressed.
std::vector<Document> rows_of(std::string text, int64_t num_tokens) {
  DocumentReader reader(source_of(std::move(text), "t"), num_tokens);
  std::vector<Document> rows;
  while (auto row = reader.next()) rows.push_back(std::move(*row));
  return rows;
}

TEST(DocumentTableTest, ReadsWhatItWritesAndRefusesGaps) {
  const std::string good =
      format_document({0, 3, "a", "f\"1\",x", 1}) + format_document({3, 9, "line\nbreak", "", 2});
  const std::vector<Document> rows = rows_of(good, 9);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].source, "f\"1\",x");
  EXPECT_EQ(rows[1].id, "line\nbreak");
  EXPECT_EQ(rows_of("0,9\r\n", 9)[0].end, 9);
  EXPECT_EQ(rows_of("0,9,a,b,7\r\n", 9)[0].location, 7);
  const auto failure = [](const std::string& text) {
    return message_of([&] { rows_of(text, 9); });
  };
  EXPECT_THAT(failure("0,9,a,b,1\n"), "");
  EXPECT_THAT(failure("1,9,a,b,1\n"), HasSubstr("'t' row 1: tokens 1 to 9 leave a gap behind 0"));
  EXPECT_THAT(failure("0,5,a,b,1\n4,9,a,b,2\n"),
              HasSubstr("'t' row 2: tokens 4 to 9 overlap with those up to 5"));
  EXPECT_THAT(failure("0,0,a,b,1\n"), HasSubstr("tokens 0 to 0 are none"));
  EXPECT_THAT(failure("0,10,a,b,1\n"), HasSubstr("reach past the end: there are 9"));
  EXPECT_THAT(failure("0,8,a,b,1\n"), HasSubstr("ends after 1 documents with 8 tokens, of 9"));
  EXPECT_THAT(failure("0,9,a,b\n"), HasSubstr("expected 5 columns"));
  EXPECT_THAT(failure("0,9,a,b,1,c\n"), HasSubstr("expected 5 columns"));
  EXPECT_THAT(failure("0,9x,a,b,1\n"), HasSubstr("'9x' is not a number"));
  EXPECT_THAT(failure("0,9,\"a,b,1\n"), HasSubstr("expected 5 columns"));
  EXPECT_THAT(failure("0,9," + std::string(10000, 'x')), HasSubstr("longer than 8192 bytes"));
  EXPECT_THAT(failure(""), HasSubstr("ends after 0 documents"));
}

}  // namespace
}  // namespace atl::data
