// The parts of tokenizer.json beyond GPT-2's, one by one; tests/oracle/tokenizer_oracle.py holds
// whole families to Hugging Face's library.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "atoll/testing/sample_tokenizer.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kMark = "\u2581";

Json llama_json(const std::vector<std::string>& tokens, const std::vector<std::string>& merges) {
  return Json::parse(data::sample_llama_json(tokens, merges));
}

Json small_llama() {
  // 259: mark, 260: a, 261: b, 262: mark a, 263: ab
  return llama_json({kMark, "a", "b", "\u2581a", "ab"}, {"\u2581 a", "a b"});
}

Tokenizer tokenizer_of(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

std::vector<TokenId> ids_of(const Json& json, std::string_view text) {
  return tokenizer_of(json).encode(text, SpecialText::kToken);
}

std::string error_of(const Json& json) {
  return message_of([&] { tokenizer_of(json); });
}

TEST(LlamaTokenizerTest, PutsAMarkBeforeEachTextAndFallsBackToBytes) {
  const Tokenizer tokenizer = tokenizer_of(small_llama());
  const auto ids = tokenizer.encode("a ab\u00e9", SpecialText::kToken);
  EXPECT_THAT(ids, ElementsAre(262, 262, 261, 0xC3 + 3, 0xA9 + 3));
  EXPECT_EQ(tokenizer.decode(ids), "a ab\u00e9");
  EXPECT_EQ(tokenizer.decode_part(std::vector<int64_t>(ids.begin(), ids.end())), " a ab\u00e9");
  EXPECT_THAT(tokenizer.with_special_tokens(ids),
              ElementsAre(1, 262, 262, 261, 0xC3 + 3, 0xA9 + 3));
  EXPECT_THAT(tokenizer.encode("a<s>a", SpecialText::kToken), ElementsAre(262, 1, 262));
  EXPECT_THAT(tokenizer.encode("", SpecialText::kToken), ElementsAre());
  // A mark in the text is what a space becomes.
  EXPECT_THAT(tokenizer.encode("a\u2581a", SpecialText::kToken), ElementsAre(262, 262));
}

TEST(LlamaTokenizerTest, MergesAcrossSpacesWhereTheVocabularyDoes) {
  Json json = llama_json({kMark, "a", "b", "b\u2581"}, {"b \u2581"});
  EXPECT_THAT(ids_of(json, "b b a"), ElementsAre(259, 262, 262, 260));
}

TEST(LlamaTokenizerTest, UnknownCharactersFuseOnlyWhenAsked) {
  Json json = small_llama();
  json["model"]["byte_fallback"] = false;
  EXPECT_THAT(ids_of(json, "a\u00e9\u00e9b"), ElementsAre(262, 0, 261));
  json["model"]["fuse_unk"] = false;
  EXPECT_THAT(ids_of(json, "a\u00e9\u00e9b"), ElementsAre(262, 0, 0, 261));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT(ids_of(json, "a\u00e9\u00e9b"), ElementsAre(262, 261));
}

TEST(LlamaTokenizerTest, ACharacterWithAByteThatIsLackedIsUnknownAsAWhole) {
  Json json = small_llama();
  json["model"]["vocab"].erase("<0xA9>");
  EXPECT_THAT(ids_of(json, "a\u00e9b"), ElementsAre(262, 0, 261));
  // The bytes of a character come before the unknown one in front of it, as in the library.
  EXPECT_THAT(ids_of(json, "\u00e9\u00e8b"), ElementsAre(259, 0xC3 + 3, 0xA8 + 3, 0, 261));
}

TEST(LlamaTokenizerTest, MetaspaceHasItsSchemes) {
  Json json = small_llama();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_THAT(ids_of(json, "a<s>a"), ElementsAre(262, 1, 260));
  EXPECT_THAT(ids_of(json, "<s>a"), ElementsAre(1, 260));
  EXPECT_THAT(ids_of(json, " a"), ElementsAre(262));
  json["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_THAT(ids_of(json, "a<s>a"), ElementsAre(262, 1, 262));
  json["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_THAT(ids_of(json, "a a"), ElementsAre(260, 262));
  json["pre_tokenizer"]["prepend_scheme"] = "sometimes";
  EXPECT_THAT(error_of(json), HasSubstr("prepend_scheme is not always, first or never"));
}

TEST(LlamaTokenizerTest, MetaspaceDecodesTheFirstTokenWithoutMarks) {
  Json json = small_llama();
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "always"}};
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{262, 262}), "a a");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1, 262}), "<s> a");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{3}), "<0x00>");  // It names no ByteFallback.
}

TEST(LlamaTokenizerTest, NamesWhatItLacks) {
  Json json = small_llama();
  json["model"]["unk_token"] = "missing";
  EXPECT_EQ(error_of(json), "") << "it is not needed where all bytes are there";
  json["model"]["vocab"].erase("<0x41>");
  EXPECT_THAT(error_of(json), HasSubstr("\"missing\" is not in the vocabulary"));
  json = small_llama();
  json["decoder"]["decoders"][3]["stop"] = 1;
  EXPECT_THAT(error_of(json), HasSubstr("decoder [\"Replace\""));
  json = small_llama();
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(error_of(json), HasSubstr("ignore_merges of a text that nothing cuts"));
}

TEST(LlamaTokenizerTest, AMarkBeforeMetaspaceIsOneMore) {
  Json json = small_llama();
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", kMark}};
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "never"}};
  const auto with_mark = ids_of(json, "a");
  json["normalizer"] = nullptr;
  EXPECT_EQ(with_mark, ids_of(json, std::string(kMark) + "a"));
  json["pre_tokenizer"]["prepend_scheme"] = "first";
  EXPECT_EQ(error_of(json), "");
  json["normalizer"] = {{"type", "Strip"}};
  EXPECT_THAT(error_of(json), HasSubstr("prepend_scheme first behind the normalizer Strip"));
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'a')}};
  json["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_THAT(message_of([&] { ids_of(json, std::string(100, 'a')); }),
              HasSubstr("the tokenizer's normalizer makes more than"));
}

/// A trained byte-level file ("ab" is id 257) whose parts a test replaces.
Json byte_level() {
  WordCounts words;
  words.add("ab ab");
  return Json::parse(
      train_tokenizer(words, {.vocab_size = 258, .min_frequency = 2}, [](int64_t) {}));
}

Json split_by(const std::string& pattern, const std::string& behavior, bool invert) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", behavior},
             {"invert", invert}},
            {{"type", "ByteLevel"},
             {"add_prefix_space", false},
             {"trim_offsets", true},
             {"use_regex", false}}}}};
}

TEST(SplitTest, KnowsPatternsByTheirText) {
  const std::string qwen = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                           R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  Json json = byte_level();
  json["pre_tokenizer"] = split_by(qwen, "Isolated", false);
  EXPECT_EQ(error_of(json), "");
  json["pre_tokenizer"] = split_by(qwen, "Removed", true);
  EXPECT_EQ(error_of(json), "");
  EXPECT_TRUE(tokenizer_of(json).keeps_text());
  // Others run in Oniguruma.
  json["pre_tokenizer"] = split_by(qwen + "|x", "Isolated", false);
  EXPECT_EQ(error_of(json), "");
  json["pre_tokenizer"] = split_by("b", "Removed", false);
  EXPECT_THAT(ids_of(json, "abab"), ids_of(json, "aa"));
  EXPECT_FALSE(tokenizer_of(json).keeps_text());
  json["pre_tokenizer"] = nullptr;
  for (int i = 0; i < 1000; ++i) {
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {json["pre_tokenizer"]}}};
  }
  EXPECT_THAT(error_of(json), HasSubstr("8 Sequences in each other"));
  json["pre_tokenizer"] = split_by("b", "Doubled", false);
  EXPECT_THAT(error_of(json), HasSubstr("Split with behavior Doubled"));
}

TEST(IgnoreMergesTest, TakesAWholeWordAsItIs) {
  Json json = byte_level();
  json["model"]["vocab"]["aab"] = 258;  // No merge makes it.
  EXPECT_THAT(ids_of(json, "aab").size(), 2U);
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(ids_of(json, "aab"), ElementsAre(258));
}

TEST(NormalizerTest, AddedTokensComeBeforeAndBehindIt) {
  Json json = byte_level();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].push_back({{"id", 258}, {"content", "e\u0301"}, {"normalized", false}});
  json["added_tokens"].push_back({{"id", 259}, {"content", "a\u0301"}, {"normalized", true}});
  EXPECT_THAT(ids_of(json, "e\u0301a\u0301\u00e1"), ElementsAre(258, 259, 259));
  EXPECT_EQ(ids_of(json, "\u00e9").size(), 2U);
}

TEST(PostProcessorTest, SequencesNest) {
  Json json = byte_level();
  const auto around = [](const char* single) {
    return Json{{"type", "TemplateProcessing"},
                {"single", Json::parse(single)},
                {"special_tokens",
                 {{"a", {{"id", "a"}, {"ids", {5}}}}, {"b", {{"id", "b"}, {"ids", {6}}}}}}};
  };
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        around(
            R"([{"SpecialToken": {"id": "a"}}, {"Sequence": {}}, {"SpecialToken": {"id": "b"}}])"),
        around(R"([{"SpecialToken": {"id": "b"}}, {"Sequence": {}}])")}}};
  EXPECT_THAT(tokenizer_of(json).with_special_tokens({257}), ElementsAre(6, 5, 257, 6));
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"a", 5}}, {"sep", {"b", 6}}};
  EXPECT_THAT(tokenizer_of(json).with_special_tokens({257}), ElementsAre(5, 257, 6));
  json["post_processor"]["sep"][1] = 999;
  EXPECT_THAT(error_of(json), HasSubstr("post_processor: id 999 is not in the vocabulary"));
  json["post_processor"]["type"] = "Doubling";
  EXPECT_THAT(error_of(json), HasSubstr("post_processor Doubling"));
}

}  // namespace
}  // namespace atl::tokenizer
