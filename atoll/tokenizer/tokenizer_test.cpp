#include "atoll/tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <functional>

#include "atoll/base/random.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/bpe.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/gpt2_words.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words_of(std::string_view text) {
  const Gpt2Words splitter;
  std::vector<std::string> words;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const after = splitter.next(at, end);
    words.emplace_back(at, after);
    at = after;
  }
  return words;
}

TEST(Gpt2WordsTest, CutsAsTheRegularExpressionDoes) {
  EXPECT_THAT(words_of("I'll don't O'Neill's"),
              ElementsAre("I", "'ll", " don", "'t", " O", "'", "Neill", "'s"));
  EXPECT_THAT(words_of("x = 12ab"), ElementsAre("x", " =", " 12", "ab"));
  EXPECT_THAT(words_of("a\n    b"), ElementsAre("a", "\n   ", " b"));
  EXPECT_THAT(words_of("a\n\nb \t"), ElementsAre("a", "\n", "\n", "b", " \t"));
  EXPECT_THAT(words_of("''s 's"), ElementsAre("''", "s", " '", "s"));
  EXPECT_THAT(words_of("'r 'l' 'v"), ElementsAre("'", "r", " '", "l", "'", " '", "v"));
  EXPECT_THAT(words_of(" "), ElementsAre(" "));
}

TEST(Gpt2WordsTest, KnowsClassesBeyondAscii) {
  // No-break space, then a letter; ideographic space as the last of a run; Arabic-Indic digits.
  EXPECT_THAT(words_of("\u00a0\u00e9t\u00e9"), ElementsAre("\u00a0", "\u00e9t\u00e9"));
  EXPECT_THAT(words_of("\u3000\u3000x"), ElementsAre("\u3000", "\u3000", "x"));
  EXPECT_THAT(words_of(" \u0661\u0662a"), ElementsAre(" \u0661\u0662", "a"));
  // A combining accent is neither letter nor number; U+105C0 is a letter since Unicode 16.
  EXPECT_THAT(words_of("e\u0301e"), ElementsAre("e", "\u0301", "e"));
  EXPECT_THAT(words_of("a\U000105C0"), ElementsAre("a\U000105C0"));
}

TEST(Utf8Test, ReplacesMaximalSubparts) {
  const auto repaired = [](std::string_view text) {
    int64_t count = 0;
    std::string result = text::repair_utf8(text, count);
    return std::pair(std::move(result), count);
  };
  const std::string mark = "\uFFFD";
  EXPECT_EQ(repaired("a\x80z"), std::pair("a" + mark + "z", int64_t{1}));
  EXPECT_EQ(repaired("\xE2\x82z"), std::pair(mark + "z", int64_t{1}));             // Cut short.
  EXPECT_EQ(repaired("\xC0\xAF"), std::pair(mark + mark, int64_t{2}));             // Overlong.
  EXPECT_EQ(repaired("\xED\xA0\x80"), std::pair(mark + mark + mark, int64_t{3}));  // Surrogate.
  EXPECT_EQ(repaired("\xF4\x90\x80\x80").second, 4);                               // Over 10FFFF.
  EXPECT_EQ(repaired("\xF0\x9F\x98"), std::pair(mark, int64_t{1}));                // At the end.
  EXPECT_EQ(repaired("\u00e9\U0001F600"), std::pair(std::string("\u00e9\U0001F600"), int64_t{0}));
}

TEST(ByteAlphabetTest, SpellsEveryByteByItsOwnCharacter) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(read_spelling(spell_bytes(all)), all);
  EXPECT_EQ(spell_bytes(" "), "\u0120");
  EXPECT_EQ(read_spelling("\u4e00"), std::nullopt);
}

std::string trained(const std::string& text, int64_t vocab_size) {
  WordCounts words;
  words.add(text);
  return train_tokenizer(words, {.vocab_size = vocab_size, .min_frequency = 2}, [](int64_t) {});
}

Tokenizer sample_tokenizer() {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "def function(self): return self.value + banana\n aaaa aaaa";
  return Tokenizer::from_json(trained(text, 320), "sample");
}

TEST(TokenizerTest, TrainsMergesInOrderOfFrequencyThenIds) {
  // "ab" occurs 4 times, "cd" 3 times, "ef" twice, "gh" once (below the minimum).
  const Tokenizer tokenizer =
      Tokenizer::from_json(trained("ab\nab\nab\nab\ncd\ncd\ncd\nef\nef\ngh", 300), "t");
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.token_bytes(257), "ab");
  EXPECT_EQ(tokenizer.token_bytes(258), "cd");
  EXPECT_EQ(tokenizer.token_bytes(259), "ef");
  EXPECT_EQ(tokenizer.end_of_text(), 0);
}

TEST(TokenizerTest, GivesBackTheBytes) {
  const Tokenizer tokenizer = sample_tokenizer();
  const std::string text = "def f(self):\n\treturn 'caf\u00e9 \U0001F600' + banana  \n";
  const auto ids = tokenizer.encode(text, SpecialText::kToken);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{320}), InputError);
  EXPECT_THROW(tokenizer.decode_part(std::vector<int64_t>{int64_t{1} << 40}), InputError);
  // A model with more rows than the tokenizer has ids may make one of them.
  EXPECT_EQ(tokenizer.bytes_or_none(tokenizer.vocab_size()), "");
  EXPECT_EQ(tokenizer.bytes_or_none(-1), "");
  EXPECT_EQ(tokenizer.bytes_or_none(0), tokenizer.token_bytes(0));
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{-1}), InputError);
}

TEST(TokenizerTest, ReadsSpecialTokensInTextOnlyWhenAsked) {
  const Tokenizer tokenizer = sample_tokenizer();
  const std::string text = "a<|endoftext|><|endoftext|>b<|endoftext";
  const auto special = tokenizer.encode(text, SpecialText::kToken);
  const auto plain = tokenizer.encode(text, SpecialText::kPlain);
  EXPECT_EQ(std::count(special.begin(), special.end(), 0), 2);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0), 0);
  EXPECT_EQ(tokenizer.decode(special), text);
  EXPECT_EQ(tokenizer.decode(plain), text);
}

TEST(EncoderTest, CountsWhatItReplaced) {
  const Tokenizer tokenizer = sample_tokenizer();
  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  encoder.encode("a\xffz\xfe", SpecialText::kPlain, ids);
  EXPECT_EQ(encoder.num_replaced(), 2);
  EXPECT_EQ(tokenizer.decode(ids), "a\uFFFDz\uFFFD");
}

TEST(EncoderTest, CachesAndPiecesDoNotShow) {
  // Random words, short and long, in more bytes than one piece; the cache answers the second time.
  const Tokenizer tokenizer = sample_tokenizer();
  std::string text;
  for (uint64_t i = 0; text.size() < 100'000; ++i) {
    text += i % 3 == 0 ? "\n" : " ";
    const uint64_t length = random_bits(1, 0, i) % (i % 50 == 0 ? 400 : 14);
    for (uint64_t j = 0; j < length; ++j) text += "aabnsefl.("[random_bits(1, i + 1, j) % 10];
  }
  Encoder encoder(tokenizer);
  std::vector<TokenId> first;
  std::vector<TokenId> again;
  encoder.encode(text, SpecialText::kPlain, first);
  encoder.encode(text, SpecialText::kPlain, again);
  EXPECT_EQ(first, again);
  EXPECT_EQ(tokenizer.decode(first), text);
  std::vector<TokenId> word_by_word;
  for (const std::string& word : words_of(text)) {
    const auto ids = tokenizer.encode(word, SpecialText::kPlain);
    word_by_word.insert(word_by_word.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(first, word_by_word);
}

TEST(BpeTest, ScanAndHeapAgree) {
  // The same word alone (scan) and inside one long word of separators that merge with nothing.
  MergeTable table(200);
  for (uint32_t rank = 0; rank < 200; ++rank) {
    const auto left = static_cast<TokenId>(random_bits(2, 0, rank) % (8 + rank));
    const auto right = static_cast<TokenId>(random_bits(2, 1, rank) % (8 + rank));
    table.insert(left, right, {rank, static_cast<TokenId>(8 + rank)});
  }
  constexpr TokenId kSeparator = 1000;
  BpeScratch scratch;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<TokenId> word(1 + random_bits(seed, 0, 0) % 48);
    for (size_t i = 0; i < word.size(); ++i) {
      word[i] = static_cast<TokenId>(random_bits(seed, 1, i) % 8);
    }
    std::vector<TokenId> padded(64, kSeparator);
    padded.insert(padded.end(), word.begin(), word.end());
    word.resize(scratch.merge(table, word.data(), word.size()));
    padded.resize(scratch.merge(table, padded.data(), padded.size()));
    padded.erase(padded.begin(), padded.begin() + 64);
    ASSERT_EQ(word, padded) << "seed " << seed;
  }
}

TEST(EncoderTest, AMegabyteWithoutSpacesIsNotQuadratic) {
  const Tokenizer tokenizer = sample_tokenizer();
  const std::string text(1'000'000,
                         'a');  // Quadratic merging would take hours: the test times out.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialText::kToken)), text);
}

/// The message of the error that loading gives after `from` became `to`; empty when it loads.
std::string error_after(const std::string& from, const std::string& to) {
  std::string json = trained("ab ab", 258);
  const size_t at = json.find(from);
  if (at == std::string::npos) return "the sample lacks " + from;
  json.replace(at, from.size(), to);
  return message_of([&] { Tokenizer::from_json(json, "edited.json"); });
}

TEST(TokenizerTest, RefusesByNameWhatItCannotDo) {
  EXPECT_EQ(error_after("\"1.0\"", "\"1.0\""), "");
  EXPECT_THAT(error_after("\"normalizer\": null", "\"normalizer\": {\"type\": \"ByteLevel\"}"),
              HasSubstr("normalizer ByteLevel is not supported"));
  EXPECT_THAT(error_after("\"type\": \"ByteLevel\"", "\"type\": \"UnicodeScripts\""),
              HasSubstr("pre_tokenizer UnicodeScripts is not supported"));
  EXPECT_THAT(error_after("\"type\": \"ByteLevel\"", "\"type\": \"Whitespace\""),
              HasSubstr("decoder [\"ByteLevel\"] is not supported"))
      << "its words are no bytes";
  const std::string split =
      R"("type": "Split", "behavior": "Isolated", "pattern": {"Regex": "a(b"}, "was": "ByteLevel")";
  EXPECT_THAT(error_after("\"type\": \"ByteLevel\"", split),
              HasSubstr("'edited.json': Split: the pattern a(b is no regular expression"));
  EXPECT_THAT(error_after("\"BPE\"", "\"Unigram\""), HasSubstr("model Unigram"));
  EXPECT_THAT(error_after("\"dropout\": null", "\"dropout\": 0.1"),
              HasSubstr("model.dropout = 0.1"));
  EXPECT_EQ(error_after("\"padding\": null", "\"padding\": {}"), "") << "transformers asks itself";
  EXPECT_THAT(error_after("\"version\"", "\"wordpieces\""), HasSubstr("\"wordpieces\""));
}

TEST(TokenizerTest, NamesWhatIsBroken) {
  EXPECT_THAT(error_after("{", "["), HasSubstr("'edited.json': not valid JSON"));
  EXPECT_THAT(error_after("\"model\"", "\"modal\""), HasSubstr("no \"model\""));
  EXPECT_THAT(error_after("\"!\": 1,", "\"!\": 2,"), HasSubstr("id 2 is given twice"));
  EXPECT_THAT(error_after("\"!\": 1,", "\"!\": -1,"), HasSubstr("-1 is not a token id"));
  EXPECT_THAT(error_after("\"!\": 1,", "\"!\": 99999999999,"), HasSubstr("is not a token id"));
  EXPECT_THAT(error_after("\"ab\": 257", "\"abc\": 257"), HasSubstr("\"ab\" is not in the vocab"));
  EXPECT_THAT(error_after("\"version\"", "\"\\ud800\""), HasSubstr("surrogate"));
  EXPECT_THAT(error_after("\"!\": 1,", "\"!\": 1e999,"), HasSubstr("a number is too large"));
  const std::string list = "\"added_tokens\": [";
  EXPECT_THAT(error_after(list, list + R"({"id": 5, "content": "<x>"},)"),
              HasSubstr("\"<x>\" has id 5, which is the id of another token"));
  EXPECT_THAT(error_after(list, list + R"({"id": 900, "content": ""},)"),
              HasSubstr("id 900 has no content"));
  EXPECT_THAT(error_after(list, list + R"({"id": 900, "content": "<x>"},)"),
              HasSubstr("\"<x>\" has id 900, but Hugging Face's library would give it 258"));
  // Its own entry in the vocabulary may be repeated.
  EXPECT_EQ(error_after(list, list + R"({"id": 257, "content": "ab"},)"), "");
  EXPECT_THROW(Tokenizer::load("/nowhere/tokenizer.json"), InputError);
}

TEST(TokenizerTest, LeavesOutAndCountsWhatTheVocabularyLacks) {
  std::string json = trained("ab ab", 258);
  EXPECT_TRUE(Tokenizer::from_json(json, "t").keeps_text());
  json.erase(json.find("\"!\": 1,"), 7);
  const Tokenizer tokenizer = Tokenizer::from_json(json, "t");
  EXPECT_FALSE(tokenizer.keeps_text());
  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  encoder.encode("ab! !!", SpecialText::kToken, ids);
  EXPECT_EQ(tokenizer.decode(ids), "ab ");
  EXPECT_EQ(encoder.num_without_token(), 3);
  // A word that was met before counts again, and so does a long one.
  encoder.encode("!!" + std::string(30, '!'), SpecialText::kToken, ids);
  encoder.encode(" !!" + std::string(30, '!'), SpecialText::kToken, ids);
  EXPECT_EQ(encoder.num_without_token(), 67);
}

TEST(TokenizerTest, PutsTemplateTokensAroundOnRequest) {
  std::string json = trained("ab ab", 258);
  const std::string none = "\"post_processor\": null";
  json.replace(json.find(none), none.size(),
               R"("post_processor": {"type": "TemplateProcessing",
                  "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                             {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                  "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0],
                                     "tokens": ["<|endoftext|>"]}}})");
  const Tokenizer tokenizer = Tokenizer::from_json(json, "t");
  EXPECT_THAT(tokenizer.encode("ab", SpecialText::kToken), ElementsAre(257));
  EXPECT_THAT(tokenizer.with_special_tokens({257}), ElementsAre(0, 257));
}

TEST(TrainerTest, RefusesBadOptionsAndNoText) {
  EXPECT_THROW(trained("ab", 256), UsageError);
  EXPECT_THROW(trained("", 300), InputError);
  WordCounts words;
  words.add("ab");
  EXPECT_THROW(train_tokenizer(words, {.vocab_size = 300, .min_frequency = 0}, [](int64_t) {}),
               UsageError);
}

}  // namespace
}  // namespace atl::tokenizer
