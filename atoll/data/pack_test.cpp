// What packing promises: the same store from any form of the same text, with any number of threads,
// in one piece or in shards.
#include "atoll/data/pack.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <map>

#include "atoll/base/file.h"
#include "atoll/data/merge.h"
#include "atoll/data/ordered_work.h"
#include "atoll/testing/packed_text.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;

/// Lines of 8 to 200 bytes, some empty, some with an id.
std::string json_lines(int num_lines) {
  std::string text;
  for (int i = 0; i < num_lines; ++i) {
    const auto words = static_cast<size_t>(i * 7 % 23);
    std::string body;
    for (size_t word = 0; word < words; ++word) body += " the cat sat";
    const std::string id = i % 3 == 0 ? ", \"id\": \"doc-" + std::to_string(i) + "\"" : "";
    text += "{\"text\": \"" + std::to_string(i * i) + body + "\"" + id + "}\n";
    if (i % 11 == 0) text += "\n{\"text\": \"\"}\n";
  }
  return text;
}

class PackTest : public ::testing::Test {
 protected:
  PackTest() {
    tokenizer::WordCounts words;
    words.add("the cat sat on the mat, the cat sat on the hat");
    folder_.write(
        "tokenizer.json",
        tokenizer::train_tokenizer(words, {.vocab_size = 280, .min_frequency = 2}, [](int64_t) {}));
  }
  PackReport pack_into(const std::string& store, const CorpusOptions& corpus,
                       const PackOptions& options = {.validation_share = 0.3}) const {
    return pack(Corpus(corpus), tokenizer::Tokenizer::load(folder_ / "tokenizer.json"),
                folder_ / store, options, [](const PackProgress&) {});
  }
  std::string failure(const std::string& file, CorpusOptions corpus = {}) const {
    corpus.inputs = {(folder_ / file).string()};
    const std::string message = message_of([&] { pack_into("store", corpus); });
    EXPECT_FALSE(fs::exists(folder_ / "store"));
    EXPECT_FALSE(fs::exists(folder_ / "store.tmp"));
    return message;
  }
  std::vector<std::string> texts_of(const std::string& file, CorpusOptions corpus = {}) const {
    corpus.inputs = {(folder_ / file).string()};
    std::vector<std::string> texts;
    Corpus(corpus).for_each(
        [&](const CorpusDocument& document, int64_t) { texts.push_back(document.text); });
    return texts;
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* name : {"tokens-train.npy", "tokens-train.csv.gz", "tokens-validation.npy",
                             "tokens-validation.csv.gz", "store.json", "tokenizer.json"}) {
      EXPECT_EQ(read_file(folder_ / a / name), read_file(folder_ / b / name)) << name;
    }
  }
  /// Inputs of each kind: enough for many batches, and cut in the middle by any shard.
  CorpusOptions many_files() const {
    folder_.write("a.jsonl", json_lines(12'000));
    folder_.write("b.jsonl.gz", gzipped(json_lines(900)));
    folder_.write("c.json.gz", gzipped(json_lines(300)));
    folder_.write("d.txt.zst", zstd_packed("one\n<|endoftext|>\nthe cat\n<|endoftext|>\n"));
    std::string text;
    for (int i = 0; i < 9'000; ++i) text += "the cat sat on " + std::to_string(i) + "\n";
    folder_.write("e.txt", text);
    folder_.write("f/x.txt", text);
    folder_.write("f/y.py", "print('the cat')\n");
    folder_.write("f/z.jsonl.zst", zstd_packed(json_lines(40)));
    CorpusOptions corpus{.document_bytes = 500};
    for (const char* name : {"a.jsonl", "b.jsonl.gz", "c.json.gz", "d.txt.zst", "e.txt", "f"}) {
      corpus.inputs.push_back((folder_ / name).string());
    }
    return corpus;
  }

  TestFolder folder_;
};

TEST_F(PackTest, ReadsPackedTextAsItReadsPlain) {
  const std::string lines = json_lines(50);
  folder_.write("plain.jsonl", lines);
  folder_.write("a.jsonl.gz", gzipped(lines));
  folder_.write("a.jsonl.zst", zstd_packed(lines));
  folder_.write("a.json.gz", gzipped(lines));
  folder_.write("unnamed.jsonl", zstd_packed(lines));  // Known by its first bytes.
  const auto plain = texts_of("plain.jsonl");
  ASSERT_GT(plain.size(), 40U);
  for (const char* name : {"a.jsonl.gz", "a.jsonl.zst", "a.json.gz", "unnamed.jsonl"}) {
    EXPECT_EQ(texts_of(name), plain) << name;
  }
  const std::string text = "one\ntwo\n<|endoftext|>\n<|endoftext|>\nthree\n<|endoftext|>";
  folder_.write("a.txt", text);
  folder_.write("a.txt.gz", gzipped(text));
  folder_.write("a.txt.zst", zstd_packed(text));
  for (const char* name : {"a.txt", "a.txt.gz", "a.txt.zst"}) {
    EXPECT_THAT(texts_of(name, {.document_bytes = 2}),
                ::testing::ElementsAre("one\ntwo\n", "three\n"))
        << name;
  }
}

TEST_F(PackTest, FoldersHoldPackedTextToo) {
  folder_.write("tree/a.jsonl.zst", zstd_packed("{\"text\": \"one\"}\n"));
  folder_.write("tree/b.txt.gz", gzipped("two"));
  folder_.write("tree/c.tar.gz", gzipped(std::string(600, '\0')));
  EXPECT_THAT(texts_of("tree"), ::testing::ElementsAre("one", "two"));
}

/// A folder with a file for each way not to be what its name says, beside files that are.
class LeftOutTest : public PackTest {
 protected:
  LeftOutTest() {
    folder_.write("tree/a.jsonl", json_lines(40));
    folder_.write("tree/b.json.gz",
                  gzipped("{\n\"text\": \"pretty\",\n\"more\": [\n{\"text\": \"no\"}\n]}\n"));
    folder_.write("tree/c.json.gz", gzipped("{\"weights\": [1, 2]}\n"));
    folder_.write("tree/d.jsonl.zst", "plain");
    folder_.write("tree/e.txt.gz", "");
    folder_.write("tree/f.jsonl.gz", gzipped(json_lines(3000)).substr(0, 4000));
    folder_.write("tree/g.jsonl", json_lines(60) + "{\"text\": 1}\n[\n" + json_lines(60));
    folder_.write("tree/h.txt.zst", zstd_packed("whole") + "x");
    folder_.write("tree/i.py", "print('the cat')\n");
  }
  CorpusOptions tree(const std::string& file = "", bool strict = false) const {
    return {.inputs = {(folder_ / "tree" / file).string()}, .strict = strict};
  }
  /// Name and number of faults of each file that was left out, wholly or in part.
  static std::vector<std::pair<std::string, int64_t>> names_of(const LeftOut& left_out) {
    std::vector<std::pair<std::string, int64_t>> names;
    for (const LeftOut::File& file : left_out.files) {
      names.emplace_back(fs::path(file.path).filename(), file.num_faults);
    }
    return names;
  }
  static constexpr auto kFaulty = {"b.json.gz",  "c.json.gz", "d.jsonl.zst", "e.txt.gz",
                                   "f.jsonl.gz", "g.jsonl",   "h.txt.zst"};
};

TEST_F(LeftOutTest, InAFolderItIsNamedAndCountedAndTheRestIsPacked) {
  const PackReport report = pack_into("store", tree());
  EXPECT_THAT(
      names_of(report.left_out),
      ::testing::ElementsAre(Pair("b.json.gz", 1), Pair("c.json.gz", 1), Pair("d.jsonl.zst", 1),
                             Pair("e.txt.gz", 1), Pair("f.jsonl.gz", 1), Pair("g.jsonl", 2),
                             Pair("h.txt.zst", 1)));
  const std::string said = describe(report.left_out);
  for (const char* part :
       {"b.json.gz' line 1: not valid JSON", "c.json.gz' line 1: no text in",
        "d.jsonl.zst' does not begin as zstd does", "e.txt.gz' is empty",
        "f.jsonl.gz' is truncated", "g.jsonl' line 73: no text in", "(and 1 more)",
        "h.txt.zst' holds something behind its end", "7 files", "--strict"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
  // What can be read of them is there: all lines but two, and those before the damage.
  const std::vector<std::string> texts = texts_of("tree");
  folder_.write("good.jsonl", json_lines(60));
  const std::vector<std::string> good = texts_of("good.jsonl");
  EXPECT_GT(texts.size(), 2 * good.size() + 40 + 100);
  EXPECT_EQ(texts.back(), "print('the cat')\n");
  EXPECT_TRUE(std::equal(good.rbegin(), good.rend(), texts.rbegin() + 1));
  for (const char* none : {"pretty", "no", "whole"}) {
    EXPECT_THAT(texts, ::testing::Not(::testing::Contains(none)));
  }
}

TEST_F(LeftOutTest, IsTheSameForAnyThreadsAndShards) {
  for (const int64_t num_threads : {1, 5}) {
    const auto report = pack_into("threads-" + std::to_string(num_threads), tree(),
                                  {.validation_share = 0.3, .num_threads = num_threads});
    EXPECT_EQ(names_of(report.left_out).size(), kFaulty.size());
  }
  expect_same_files("threads-1", "threads-5");
  constexpr int64_t kCount = 5;
  std::vector<TokenStore> shards;
  std::map<std::string, int64_t> found;
  for (int64_t i = 0; i < kCount; ++i) {
    const std::string name = "shard-" + std::to_string(i);
    const PackReport report =
        pack_into(name, tree(), {.validation_share = 0.3, .shard = Shard{i, kCount}});
    for (const auto& [file, num_faults] : names_of(report.left_out)) found[file] += num_faults;
    shards.push_back(TokenStore::open(folder_ / name));
  }
  merge_stores(std::move(shards), {.folder = folder_ / "merged"}, [](int64_t) {});
  expect_same_files("threads-1", "merged");
  EXPECT_EQ(found.size(), kFaulty.size());
  EXPECT_EQ(found["g.jsonl"], 2);
  EXPECT_EQ(found["f.jsonl.gz"], 1);
}

TEST_F(LeftOutTest, StrictEndsAtEachOfThem) {
  for (const char* name : kFaulty) {
    EXPECT_THAT(failure(std::string("tree/") + name), HasSubstr(name)) << "named itself";
  }
  EXPECT_THAT(failure("tree", {.strict = true}), HasSubstr("/tree/"));
  for (const char* name : kFaulty) {
    folder_.write(std::string("only-") + name + "/" + name, read_file(folder_ / "tree" / name));
    EXPECT_THAT(failure(std::string("only-") + name, {.strict = true}), HasSubstr(name));
  }
}

TEST_F(LeftOutTest, WhereNothingIsLeftTheyAreTheReason) {
  folder_.write("only/b.json.gz", read_file(folder_ / "tree" / "b.json.gz"));
  EXPECT_THAT(failure("only"), HasSubstr("b.json.gz' line 1: not valid JSON"));
}

TEST_F(LeftOutTest, AFileThatCannotBeReadIsStillAnError) {
  const Corpus corpus(tree());
  fs::remove(folder_ / "tree" / "f.jsonl.gz");
  EXPECT_THAT(message_of([&] { corpus.for_each([](const CorpusDocument&, int64_t) {}); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("f.jsonl.gz")));
}

TEST_F(PackTest, TheStoreDoesNotDependOnTheThreads) {
  const CorpusOptions corpus = many_files();
  pack_into("one", corpus, {.validation_share = 0.3, .num_threads = 1});
  for (const int64_t num_threads : {2, 7}) {
    const std::string name = "threads-" + std::to_string(num_threads);
    pack_into(name, corpus, {.validation_share = 0.3, .num_threads = num_threads});
    expect_same_files("one", name);
  }
  TokenStore::open(folder_ / "one").verify();
}

TEST_F(PackTest, ShardsMergeToTheStoreOfOnePiece) {
  const CorpusOptions corpus = many_files();
  pack_into("whole", corpus);
  for (const int64_t count : {1, 3, 16}) {
    std::vector<TokenStore> shards;
    int64_t num_filled = 0;
    for (int64_t i = count - 1; i >= 0; --i) {  // In any order.
      const std::string name = "shard-" + std::to_string(count) + "-" + std::to_string(i);
      pack_into(name, corpus,
                {.validation_share = 0.3, .shard = Shard{.index = i, .count = count}});
      shards.push_back(TokenStore::open(folder_ / name));
      shards.back().verify();
      if (shards.back().num_tokens(Split::kTrain) > 0) ++num_filled;
    }
    EXPECT_GT(num_filled, count / 2);
    merge_stores(std::move(shards), {.folder = folder_ / "merged", .overwrite = true},
                 [](int64_t) {});
    expect_same_files("whole", "merged");
  }
}

TEST_F(PackTest, MergeRefusesWhatDoesNotBelongTogether) {
  folder_.write("a.jsonl", json_lines(200));
  folder_.write("b.jsonl", json_lines(100));
  const auto options = [&](const char* file) {
    return CorpusOptions{.inputs = {(folder_ / file).string()}};
  };
  const auto shard = [&](const std::string& name, const char* file, int64_t index, int64_t count,
                         double share = 0.3) {
    pack_into(name, options(file),
              {.validation_share = share, .shard = Shard{.index = index, .count = count}});
  };
  shard("a0", "a.jsonl", 0, 3);
  shard("a1", "a.jsonl", 1, 3);
  shard("a2", "a.jsonl", 2, 3);
  shard("a2-again", "a.jsonl", 2, 3);
  shard("b0", "b.jsonl", 0, 3);
  shard("half", "a.jsonl", 0, 2);
  shard("other-share", "a.jsonl", 0, 3, 0.1);
  pack_into("whole", options("a.jsonl"));
  pack_into("whole-again", options("a.jsonl"));
  const auto merge = [&](const std::vector<std::string>& names) {
    return message_of([&] {
      std::vector<TokenStore> stores;
      for (const std::string& name : names) stores.push_back(TokenStore::open(folder_ / name));
      merge_stores(std::move(stores), {.folder = folder_ / "out", .overwrite = true},
                   [](int64_t) {});
    });
  };
  EXPECT_EQ(merge({"a1", "a0", "a2"}), "");
  EXPECT_THAT(merge({"a0", "a2"}), HasSubstr("shard 1 of 3 is missing"));
  EXPECT_THAT(merge({"a0", "a1"}), HasSubstr("shard 2 of 3 is missing"));
  EXPECT_THAT(merge({"a0", "a0", "a1", "a2"}), HasSubstr("are both shard 0 of 3"));
  EXPECT_THAT(merge({"a0", "a1", "a2", "a2-again"}), HasSubstr("are both shard 2 of 3"));
  EXPECT_THAT(merge({"a0", "b0"}), HasSubstr("shards of different corpora"));
  EXPECT_THAT(merge({"a0", "half"}), HasSubstr("into 3 and 2 shards"));
  EXPECT_THAT(merge({"a0", "other-share"}), HasSubstr("validation shares, 0.3 and 0.1"));
  EXPECT_THAT(merge({"a0", "whole"}), HasSubstr("one of them is a shard"));
  EXPECT_THAT(merge({"whole", "whole-again"}), HasSubstr("are the same store"));
  std::ofstream(folder_ / "tokenizer.json", std::ios::app) << "\n";
  pack_into("other-tokenizer", options("b.jsonl"));
  EXPECT_THAT(merge({"whole", "other-tokenizer"}), HasSubstr("different tokenizers"));
  std::fstream file(folder_ / "a1/tokens-train.npy", std::ios::in | std::ios::out);
  file.put('\x05').put('\0');
  file.close();
  EXPECT_THAT(merge({"a0", "a1", "a2"}), HasSubstr("a1/tokens-train.npy' is damaged"));
}

TEST_F(PackTest, MergesStoresOneBehindTheOther) {
  folder_.write("a.jsonl", json_lines(200));
  folder_.write("b.jsonl", json_lines(100));
  const std::string a = (folder_ / "a.jsonl").string();
  const std::string b = (folder_ / "b.jsonl").string();
  pack_into("a", {.inputs = {a}});
  pack_into("b", {.inputs = {b}});
  pack_into("both", {.inputs = {a, b}});
  std::vector<TokenStore> stores;
  for (const char* name : {"a", "b"}) stores.push_back(TokenStore::open(folder_ / name));
  merge_stores(std::move(stores), {.folder = folder_ / "merged"}, [](int64_t) {});
  expect_same_files("both", "merged");
}

TEST_F(PackTest, BadUtf8IsCountedOrRefused) {
  folder_.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"a\xff\xe2\x82 b\"}\n");
  EXPECT_EQ(
      pack_into("bytes", {.inputs = {(folder_ / "a.jsonl").string()}}, {.validation_share = 0})
          .num_replaced,
      2);
  EXPECT_THAT(texts_of("a.jsonl"), ::testing::ElementsAre("one", "a\xEF\xBF\xBD\xEF\xBF\xBD b"));
  EXPECT_THAT(failure("a.jsonl", {.strict = true}),
              HasSubstr("a.jsonl' line 2, byte 12: not UTF-8"));
  folder_.write("a.txt", "one\ntwo\nth\xffree\n");
  EXPECT_THAT(failure("a.txt", {.strict = true}), HasSubstr("a.txt' line 3, byte 3: not UTF-8"));
  folder_.write("marked.txt", "one\n<|endoftext|>\nth\xffree\n");
  EXPECT_THAT(failure("marked.txt", {.strict = true}), HasSubstr("line 3, byte 3"));

  // Half a surrogate pair, and what only looks like one.
  folder_.write("half.jsonl", R"({"text": "\ud800 \udc00\ud83d\ude00 \\ud800 \uD83D\u0041"})");
  EXPECT_THAT(texts_of("half.jsonl"),
              ::testing::ElementsAre("\uFFFD \uFFFD\U0001F600 \\ud800 \uFFFDA"));
  EXPECT_THAT(failure("half.jsonl", {.strict = true}), HasSubstr("surrogate"));
}

TEST_F(PackTest, ChatsAreWhatTheTemplateMakesOfThem) {
  folder_.write("chat_template.jinja",
                "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}");
  const auto chats = std::make_shared<const tokenizer::ChatTemplate>(
      tokenizer::ChatTemplate::beside(folder_ / "tokenizer.json", ""));
  folder_.write("chats/a.jsonl",
                "[{\"role\": \"user\", \"content\": \"the cat\"}]\n\n"
                "{\"id\": \"hat\", \"messages\": [{\"role\": \"a\", \"content\": \"sat\"}]}\n");
  folder_.write("chats/notes.txt", "not a chat\n");
  const CorpusOptions options{.inputs = {(folder_ / "chats").string()}, .chats = chats};
  pack_into("store", options, {.validation_share = 0});
  const TokenStore store = TokenStore::open(folder_ / "store");
  store.verify();
  std::vector<std::string> ids;
  store.for_each_document(Split::kTrain, [&](const Document& it) { ids.push_back(it.id); });
  EXPECT_THAT(ids, ::testing::ElementsAre("a.jsonl:1", "hat"));

  std::vector<int64_t> tokens(static_cast<size_t>(store.num_tokens(Split::kTrain)));
  store.read(Split::kTrain, 0, tokens);
  const auto tokenizer = tokenizer::Tokenizer::load(folder_ / "tokenizer.json");
  EXPECT_EQ(tokenizer.decode(std::vector<tokenizer::TokenId>(tokens.begin(), tokens.end())),
            "user: the cat<|endoftext|><|endoftext|>a: sat<|endoftext|><|endoftext|>");
  EXPECT_EQ(std::ranges::count(tokens, tokenizer.end_of_text()), 4);  // Each is one token.

  folder_.write("none.jsonl", "[{\"role\": \"user\", \"content\": \"a\"}]\n{\"text\": \"b\"}\n");
  fs::remove_all(folder_ / "store");
  EXPECT_THAT(failure("none.jsonl", {.chats = chats}),
              HasSubstr("none.jsonl' line 2: neither a list of messages nor an object"));
  folder_.write("refuses.jinja", "{{ raise_exception('no turns') }}");
  const auto refusing =
      std::make_shared<const tokenizer::ChatTemplate>(tokenizer::ChatTemplate::beside(
          folder_ / "tokenizer.json", (folder_ / "refuses.jinja").string()));
  EXPECT_THAT(failure("none.jsonl", {.chats = refusing}),
              AllOf(HasSubstr("none.jsonl' line 1: "), HasSubstr("no turns")));
  EXPECT_THAT(failure("chats/notes.txt", {.chats = chats}), HasSubstr("named .jsonl"));
}

TEST_F(PackTest, NamesTheFirstFaultWhateverTheThreads) {
  std::string lines = json_lines(30'000);
  folder_.write("a.jsonl", lines + "{\"text\": 1}\n" + lines + "[\n");
  const std::string message = failure("a.jsonl");
  EXPECT_THAT(message, AllOf(HasSubstr("a.jsonl' line "), HasSubstr("no text in the field")));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(failure("a.jsonl"), message);
  const std::string packed = zstd_packed(lines);
  folder_.write("cut.jsonl.zst", packed.substr(0, packed.size() - 40));
  EXPECT_THAT(failure("cut.jsonl.zst"), HasSubstr("cut.jsonl.zst' is truncated"));
  folder_.write("garbage.txt.gz", gzipped("one\n") + "x");
  EXPECT_THAT(failure("garbage.txt.gz"),
              HasSubstr("garbage.txt.gz' holds something behind its end"));
}

TEST_F(PackTest, BoundsWhatItMustHold) {
  folder_.write("a.jsonl", "{\"text\": \"0123456789\"}\n");
  EXPECT_THAT(failure("a.jsonl", {.max_document_bytes = 20}),
              HasSubstr("a.jsonl' line 1 is longer than 20 bytes"));
  folder_.write("tree/a.txt", "one\ntwo\nthree\n");
  EXPECT_THAT(failure("tree", {.max_document_bytes = 10}),
              HasSubstr("a.txt' line 1: the document that begins here is longer than 10 bytes"));
}

TEST(OrderedWorkTest, EndsWhenAWorkerCannotBeMade) {
  using Work = OrderedWork<int, int>;
  int num_made = 0;
  const auto make_worker = [&]() -> Work::Worker {
    if (++num_made == 3) throw InputError("no more threads");
    return [](int job) { return job; };
  };
  EXPECT_EQ(message_of([&] { Work(4, 100, [](const Work::Push&) {}, make_worker); }),
            "no more threads");
}

TEST(OrderedWorkTest, BoundsWhatIsUnderWayAndEndsWhenItIsDropped) {
  std::atomic<int> num_made = 0;
  {
    OrderedWork<int, int> work(
        3, 10,
        [&](const OrderedWork<int, int>::Push& push) {
          while (push(num_made, 4)) ++num_made;
        },
        [] { return [](int job) { return job * job; }; });
    for (int i = 0; i < 50; ++i) EXPECT_EQ(work.next(), i * i);
    EXPECT_LE(num_made, 53);  // Two of 4 bytes under way, and one that waits.
  }
  OrderedWork<int, int> large(
      1, 10, [](const OrderedWork<int, int>::Push& push) { push(7, 1000); },
      [] { return [](int job) { return job; }; });
  EXPECT_EQ(large.next(), 7);
  EXPECT_EQ(large.next(), std::nullopt);
}

}  // namespace
}  // namespace atl::data
