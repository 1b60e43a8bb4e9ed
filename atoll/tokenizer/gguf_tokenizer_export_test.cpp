// Tokenizers written into GGUF files and read again.
#include "atoll/tokenizer/gguf_tokenizer_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "atoll/base/bytes.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/word_patterns.h"

namespace atl::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

/// Of all bytes, "12", "ab" and a special token.
ByteLevelBpe all_bytes(std::string_view pattern) {
  ByteLevelBpe bpe{.merges = {"1 2", "a b"}, .pattern = std::string(pattern)};
  for (int byte = 0; byte < 256; ++byte) {
    bpe.vocabulary[spell_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  bpe.vocabulary["12"] = 256;
  bpe.vocabulary["ab"] = 257;
  bpe.added_tokens.push_back(added_token("<end>", 258, true));
  return bpe;
}

Tokenizer tokenizer_of(const ByteLevelBpe& bpe) { return Tokenizer::from_json(json_of(bpe), "x"); }

std::string put(const Tokenizer& tokenizer, int64_t vocab_size = 260) {
  codec::GgufWriter file;
  return put_gguf_tokenizer(file, tokenizer, {}, vocab_size);
}

TEST(GgufTokenizerExportTest, FindsHowWordsAreCut) {
  ByteLevelBpe bpe = all_bytes(kGpt2Pattern);
  EXPECT_EQ(put(tokenizer_of(bpe)), "gpt-2");
  bpe.is_nfc = true;
  EXPECT_EQ(put(tokenizer_of(bpe)), "olmo");
  bpe.parts_digits = true;
  EXPECT_EQ(put(tokenizer_of(bpe)), "command-r");
  bpe.is_nfc = false;
  EXPECT_EQ(put(tokenizer_of(bpe)), "smollm");
}

TEST(GgufTokenizerExportTest, IdsMayHaveGaps) {
  ByteLevelBpe bpe = all_bytes(kGpt2Pattern);
  bpe.vocabulary["<end>"] = 265;
  bpe.added_tokens[0]["id"] = 265;
  EXPECT_EQ(put(tokenizer_of(bpe), 270), "gpt-2");
}

TEST(GgufTokenizerExportTest, ComesBackWithItsNeighbours) {
  ByteLevelBpe bpe = all_bytes(kGpt2Pattern);
  bpe.post_processor = token_before("<end>", 258);
  const Tokenizer tokenizer = tokenizer_of(bpe);
  codec::GgufWriter file;
  put_gguf_tokenizer(file, tokenizer, {{"eos", 258}}, 260);
  const std::string bytes = file.head();
  const codec::GgufFile read(as_byte_span(bytes), "x");
  EXPECT_EQ(read.whole("tokenizer.ggml.bos_token_id"), 258);
  EXPECT_EQ(read.whole("tokenizer.ggml.eos_token_id"), 258);
  EXPECT_EQ(read.flag("tokenizer.ggml.add_bos_token"), true);
  EXPECT_THAT(read.list("tokenizer.ggml.tokens")->texts.back(), "[PAD259]") << "of the model alone";
  const Tokenizer again = Tokenizer::from_json(json_of_gguf(read), "x");
  EXPECT_EQ(again.encode("a12<end>", SpecialText::kToken),
            tokenizer.encode("a12<end>", SpecialText::kToken));
}

TEST(GgufTokenizerExportTest, NamesWhatCannotBeSaid) {
  EXPECT_THAT(message_of([] { put(tokenizer_of(all_bytes("a|[^a]+"))); }),
              HasSubstr("cuts words as nothing that such files can say: it cannot be part of a "
                        "GGUF file; write a folder"));
  EXPECT_THAT(message_of([] { put(tokenizer_of(all_bytes(kGpt2Pattern)), 100); }),
              HasSubstr("has more than the model's 100 tokens"));
}

TEST(GgufTokenizerExportTest, AddedTokensMayLieBeyondTheModel) {
  const Tokenizer tokenizer = tokenizer_of(all_bytes(kGpt2Pattern));
  EXPECT_TRUE(tokenizer.fits(259));
  EXPECT_TRUE(tokenizer.fits(258));
  EXPECT_FALSE(tokenizer.fits(257));
  EXPECT_EQ(put(tokenizer, 258), "gpt-2");
}

TEST(GgufTokenizerExportTest, IdsAreThoseThatTheFolderNames) {
  const TestFolder folder;
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<end>"}})");
  const Tokenizer tokenizer = tokenizer_of(all_bytes(kGpt2Pattern));
  EXPECT_THAT(gguf_ids(folder, &tokenizer, -1, {5, 258, 6}, 7),
              ElementsAre(Pair("eom", 6), Pair("eos", 258), Pair("eot", 5), Pair("padding", 7)));
  EXPECT_THAT(gguf_ids(folder, nullptr, 3, {5}, -1), ElementsAre(Pair("bos", 3), Pair("eos", 5)));
}

}  // namespace
}  // namespace atl::tokenizer
