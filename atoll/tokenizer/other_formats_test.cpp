// What other formats than tokenizer.json become; tests/oracle/other_formats_oracle.py holds them to
// the libraries that they are made for.
#include "atoll/tokenizer/other_formats.h"

#include <gmock/gmock.h>

#include <cmath>

#include "atoll/base/base64.h"
#include "atoll/testing/sample_tokenizer.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {
namespace {

using data::sample_piece;
using data::sample_sentence_piece;
using data::short_field;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kUnigram = 1;
constexpr int kBpe = 2;
constexpr const char* kMark = "\u2581";

std::vector<std::string> pieces() {
  return {sample_piece("<unk>", 0, 2), sample_piece("<s>", 0, 3),   sample_piece("</s>", 0, 3),
          sample_piece("<x>", 0, 4),   sample_piece("\u2581a", -1), sample_piece("ab", 0),
          sample_piece("a", -2),       sample_piece("b", -3.5),     sample_piece(kMark, -4)};
}

std::vector<TokenId> ids_of(const std::string& file, std::string_view text,
                            SpecialText special = SpecialText::kPlain) {
  return Tokenizer::from_bytes(file, "file").encode(text, special);
}
std::string error_of(const std::string& file) {
  return message_of([&] { Tokenizer::from_bytes(file, "file"); });
}

TEST(SentencePieceTest, BpeMergesByScore) {
  const std::string model = sample_sentence_piece(kBpe, pieces());
  EXPECT_THAT(ids_of(model, "ab"), ElementsAre(8, 5)) << "before the mark's a, whose score is less";
  EXPECT_THAT(ids_of(model, "b a"), ElementsAre(8, 7, 4));
  EXPECT_THAT(ids_of(model, "a<x>", SpecialText::kToken), ElementsAre(4, 3));
  const Tokenizer tokenizer = Tokenizer::from_bytes(model, "file");
  EXPECT_THAT(tokenizer.with_special_tokens({5}), ElementsAre(1, 5)) << "as models are served";
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{8, 7, 4}), "b a");
  EXPECT_THAT(ids_of(tokenizer.json(), "b a"), ElementsAre(8, 7, 4)) << "what checkpoints carry";
}

TEST(SentencePieceTest, UnigramTakesTheLikeliest) {
  const std::string model = sample_sentence_piece(kUnigram, pieces());
  EXPECT_THAT(ids_of(model, "ab"), ElementsAre(8, 5)) << "-4 is more than -4.5";
}

TEST(SentencePieceTest, ATextCannotForgeATextsEnd) {
  for (const int type : {kUnigram, kBpe}) {
    const auto ids = ids_of(sample_sentence_piece(type, pieces()), "</s>");
    EXPECT_THAT(ids, ::testing::Not(::testing::Contains(2)));
  }
}

TEST(SentencePieceTest, ExtraSpacesGoWhereTheModelSaysSo) {
  const auto with = [](int value) {
    // Of the two the later one counts.
    return sample_sentence_piece(kBpe, pieces(), short_field(4, value));
  };
  EXPECT_THAT(ids_of(with(1), "  b   a "), ElementsAre(8, 7, 4));
  EXPECT_THAT(ids_of(with(0), " b"), ElementsAre(8, 8, 7));
}

TEST(SentencePieceTest, NamesWhatIsBroken) {
  const std::string model = sample_sentence_piece(kBpe, pieces());
  const auto with = [](const std::string& piece) {
    auto all = pieces();
    all.push_back(piece);
    return sample_sentence_piece(kBpe, all);
  };
  EXPECT_THAT(error_of(model.substr(0, 20)), HasSubstr("'file' is neither a tokenizer.json nor"));
  EXPECT_THAT(error_of("no tokenizer"), HasSubstr("'file' is neither"));
  EXPECT_THAT(error_of(""), HasSubstr("'file'"));
  EXPECT_THAT(error_of(with(sample_piece("a", -9))), HasSubstr("has \"a\" twice"));
  EXPECT_THAT(error_of(with(sample_piece("\xff", -9))), HasSubstr("not UTF-8"));
  EXPECT_THAT(error_of(with(sample_piece("c", std::nanf("")))),
              HasSubstr("a score that is no number"));
  EXPECT_THAT(error_of(with(sample_piece("c", -9, 5))), HasSubstr("\"c\", a piece that is made"));
  EXPECT_THAT(error_of(sample_sentence_piece(3, pieces())), HasSubstr("words or characters"));
  const std::string table = short_field(2, "\x08");
  EXPECT_THAT(error_of(sample_sentence_piece(kBpe, pieces(), table)),
              HasSubstr("Precompiled: the table of characters has no size"));
}

Json small_tekken() {
  Json file = {{"config",
                {{"pattern", "\\w+|\\W+"},
                 {"default_vocab_size", 261},
                 {"default_num_special_tokens", 3},
                 {"version", "v3"}}}};
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "\u00e9", "left out"}) tokens.emplace_back(token);
  for (const std::string& token : tokens) {
    file["vocab"].push_back({{"rank", file["vocab"].size()}, {"token_bytes", to_base64(token)}});
  }
  return file;
}

TEST(TekkenTest, TokensStandBehindSpecialOnes) {
  const Json file = small_tekken();
  EXPECT_THAT(ids_of(file.dump(), "abé"), ElementsAre(3 + 256, 3 + 257));
  EXPECT_THAT(ids_of(file.dump(), "<s>a", SpecialText::kToken), ElementsAre(1, 3 + 'a'));
  EXPECT_EQ(Tokenizer::from_bytes(file.dump(), "file").vocab_size(), 261);
  Json named = file;
  named["special_tokens"] = {{{"rank", 2}, {"token_str", "<end>"}}};
  EXPECT_THAT(ids_of(named.dump(), "<end>", SpecialText::kToken), ElementsAre(2));
}

TEST(TekkenTest, NamesWhatIsBroken) {
  const auto error_with = [](const char* pointer, const Json& value) {
    Json file = small_tekken();
    file[Json::json_pointer(pointer)] = value;
    return error_of(file.dump());
  };
  EXPECT_THAT(error_with("/config/default_vocab_size", 300), HasSubstr("has not the 297 tokens"));
  EXPECT_THAT(error_with("/config/default_num_special_tokens", uint64_t{1} << 60),
              HasSubstr("is no count up to"));
  EXPECT_THAT(error_with("/vocab/7/token_bytes", "?"), HasSubstr("entry 7 is not the token"));
  EXPECT_THAT(error_with("/vocab/7/rank", 8), HasSubstr("entry 7 is not the token"));
  EXPECT_THAT(error_with("/vocab/7/token_bytes", to_base64("ab")), HasSubstr("two ranks"));
  EXPECT_THAT(error_with("/special_tokens", Json::parse(R"([{"rank": 9, "token_str": "x"}])")),
              HasSubstr("special token 9 is none of 3"));
}

TEST(TiktokenTest, AFileIsKnownByItsSizeOrRefused) {
  std::string file;
  for (int rank = 0; rank < 256; ++rank) {
    file += to_base64(std::string(1, static_cast<char>(rank))) + " " + std::to_string(rank) + "\n";
  }
  EXPECT_THAT(error_of(file), HasSubstr("with 256 tokens it is not known; known are those with "
                                        "50256 (GPT-2), 100256 (cl100k_base)"));
  EXPECT_THAT(error_of(file + "?? 256\n"), HasSubstr("line 257 is not the token with rank 256"));
  for (int rank = 256; rank < 50256; ++rank) {
    file += to_base64("x" + std::to_string(rank)) + " " + std::to_string(rank) + "\n";
  }
  EXPECT_THAT(ids_of(file, "ab<|endoftext|>", SpecialText::kToken), ElementsAre('a', 'b', 50256));
}

TEST(FindTokenizer, TakesTheFolderOfAModel) {
  const TestFolder folder;
  EXPECT_EQ(find_tokenizer(folder), std::nullopt);
  EXPECT_THAT(message_of([&] { Tokenizer::load(folder); }), HasSubstr("has no tokenizer"));
  folder.write("tokenizer.model", sample_sentence_piece(kBpe, pieces()));
  EXPECT_EQ(find_tokenizer(folder), folder / "tokenizer.model");
  folder.write("tokenizer.json", data::sample_llama_json({kMark}, {}));
  EXPECT_EQ(find_tokenizer(folder), folder / "tokenizer.json");
  EXPECT_EQ(Tokenizer::load(folder).vocab_size(), 260);
}

}  // namespace
}  // namespace atl::tokenizer
