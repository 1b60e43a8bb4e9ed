// Any bytes encode without trouble and decode to the same bytes, repaired where they were not
// UTF-8; scanning and the heap merge alike; pieces and caches do not show. Normal forms are stable.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "atoll/base/check.h"
#include "atoll/testing/sample_tokenizer.h"
#include "atoll/text/normal_form.h"
#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_tables.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::tokenizer {
namespace {

Tokenizer make_tokenizer() {
  WordCounts words;
  for (int i = 0; i < 4; ++i) {
    words.add(
        "the cat sat on the mat\n\n    the hat\t1234 1234 \u00e9t\u00e9 \u4e16\u754c aaaa aaaa "
        "!!!! ====");
  }
  return Tokenizer::from_json(
      train_tokenizer(words, {.vocab_size = 340, .min_frequency = 2}, [](int64_t) {}), "fuzz");
}

/// As Qwen's: NFC, words of another pattern, added tokens with flags.
Tokenizer make_normalizing_tokenizer() {
  auto json = nlohmann::json::parse(make_tokenizer().json());
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = nlohmann::json::parse(
      R"json({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N})json"
      R"json(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})json");
  const auto id = json["model"]["vocab"].size();
  json["added_tokens"].push_back(
      {{"id", id}, {"content", "tes"}, {"single_word", true}, {"lstrip", true}});
  json["added_tokens"].push_back({{"id", id + 1}, {"content", "  "}, {"rstrip", true}});
  json["added_tokens"].push_back({{"id", id + 2}, {"content", "!="}, {"normalized", false}});
  return Tokenizer::from_json(json.dump(), "fuzz");
}

Tokenizer make_llama_tokenizer() {
  return Tokenizer::from_json(data::sample_llama_json({"\u2581", "t", "h", "e", "a", "s", "=", "1",
                                                       "\u2581t", "th", "\u2581th", "a\u2581"},
                                                      {"t h", "\u2581 th", "\u2581 t", "a \u2581"}),
                              "fuzz");
}

/// The ids, which are the same from a cache that has seen other texts.
std::vector<TokenId> encode(const Tokenizer& tokenizer, Encoder& encoder, std::string_view text,
                            SpecialText special) {
  std::vector<TokenId> ids;
  encoder.encode(text, special, ids);
  if (special == SpecialText::kToken) ATOLL_CHECK(ids == tokenizer.encode(text, special));
  return ids;
}

/// Its words are cut step by step, by patterns.
Tokenizer make_stepwise_tokenizer() {
  auto json = nlohmann::json::parse(make_tokenizer().json());
  json["pre_tokenizer"] = nlohmann::json::parse(R"json({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "MergedWithNext", "invert": false,
     "pattern": {"Regex": "\\p{N}{1,3}|(?i:[A-E])*|[\\p{M}\\s]+(?!\\S)"}},
    {"type": "Digits", "individual_digits": true},
    {"type": "Punctuation", "behavior": "Contiguous"},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]})json");
  return Tokenizer::from_json(json.dump(), "fuzz");
}

void check(std::string_view text) {
  static const Tokenizer plain = make_tokenizer();
  static const Tokenizer normalizing = make_normalizing_tokenizer();
  static const Tokenizer llama = make_llama_tokenizer();
  static const Tokenizer stepwise = make_stepwise_tokenizer();
  static Encoder plain_encoder(plain);
  static Encoder stepwise_encoder(stepwise);
  static Encoder normalizing_encoder(normalizing);
  static Encoder llama_encoder(llama);
  int64_t num_replaced = 0;
  const std::string repaired = text::repair_utf8(text, num_replaced);
  ATOLL_CHECK(text::valid_utf8_prefix(repaired) == repaired.size());
  ATOLL_CHECK((num_replaced == 0) == (repaired == text) || num_replaced > 0);
  for (const auto form : {text::NormalForm::kNfc, text::NormalForm::kNfd, text::NormalForm::kNfkc,
                          text::NormalForm::kNfkd}) {
    std::string scratch;
    const std::string normal(text::normalize(form, repaired, scratch));
    ATOLL_CHECK(text::normalize(form, normal, scratch) == normal);
  }
  for (const SpecialText special : {SpecialText::kToken, SpecialText::kPlain}) {
    ATOLL_CHECK(plain.decode(encode(plain, plain_encoder, text, special)) == repaired);
    ATOLL_CHECK(stepwise.decode(encode(stepwise, stepwise_encoder, text, special)) == repaired);
    encode(normalizing, normalizing_encoder, text, special);  // What strips take is lost.
    const auto ids = encode(llama, llama_encoder, text, special);
    if (special == SpecialText::kToken) continue;  // Each token would part two texts.
    ATOLL_CHECK(llama.decode(ids) == text::replace_text(repaired, kMark, " ", -1));
  }
}

}  // namespace
}  // namespace atl::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  atl::tokenizer::check(text);
  // The same bytes drawn from few characters: words, runs and merges that random bytes never make.
  std::string dense(text);
  for (char& c : dense) c = " \nthecas1'=!"[static_cast<uint8_t>(c) % 12];
  atl::tokenizer::check(dense);
  // And characters whose order and company matter.
  constexpr const char* kPieces[] = {"e",      "\u0301", "\u0323", "\u1100", "\u1161",
                                     "\u11a8", "\u2581", "\u3000", "\u0958", "\U0001F600"};
  std::string composed;
  for (size_t i = 0; i < std::min<size_t>(size, 100); ++i)
    composed += kPieces[data[i] % std::size(kPieces)];
  atl::tokenizer::check(composed);
  return 0;
}
