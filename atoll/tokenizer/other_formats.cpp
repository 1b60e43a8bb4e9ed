#include "atoll/tokenizer/other_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {

using Json = nlohmann::json;

namespace {

/// Where `text` can be cut, the last place first.
std::vector<size_t> cuts_of(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t at = 0; at < text.size(); at += text::decode_utf8(text.substr(at)).num_bytes) {
    if (at > 0) cuts.push_back(at);
  }
  std::ranges::reverse(cuts);
  return cuts;
}

}  // namespace

Json merges_of(const std::vector<std::string>& tokens,
               const std::unordered_set<std::string>& mergeable, const std::string& name) {
  constexpr size_t kMostBytes = 1024;  // Each cut copies the token.
  constexpr size_t kMostInAll = size_t{256} << 20;
  size_t in_all = 0;
  Json merges = Json::array();
  for (const std::string& token : tokens) {
    if (token.size() > kMostBytes) {
      throw InputError(
          fmt::format("'{}': a token of {} bytes is longer than the {} that merges may make", name,
                      token.size(), kMostBytes));
    }
    for (const size_t cut : cuts_of(token)) {
      const std::string left = token.substr(0, cut);
      const std::string right = token.substr(cut);
      if (!mergeable.contains(left) || !mergeable.contains(right)) continue;
      in_all += token.size();
      if (in_all > kMostInAll) {
        throw InputError(
            fmt::format("'{}': its tokens can be made of one another in too many ways", name));
      }
      merges.push_back({left, right});
    }
  }
  return merges;
}

Json bpe_model(Json vocabulary, Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

std::string json_of(const ByteLevelBpe& tokenizer) {
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  Json words = Json::array();
  if (tokenizer.parts_digits) words.push_back({{"type", "Digits"}, {"individual_digits", true}});
  words.push_back({{"type", "Split"},
                   {"pattern", {{"Regex", tokenizer.pattern}}},
                   {"behavior", "Isolated"},
                   {"invert", false}});
  words.push_back(byte_level);
  Json model = bpe_model(tokenizer.vocabulary, tokenizer.merges);
  model["ignore_merges"] = tokenizer.takes_whole_words;
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", tokenizer.added_tokens},
              {"normalizer", tokenizer.is_nfc ? Json{{"type", "NFC"}} : Json()},
              {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", words}}},
              {"post_processor", tokenizer.post_processor},
              {"decoder", byte_level},
              {"model", model}}
      .dump();
}

Json added_token(const std::string& content, size_t id, bool is_special, bool is_normalized) {
  return {
      {"id", id},        {"content", content},          {"single_word", false}, {"lstrip", false},
      {"rstrip", false}, {"normalized", is_normalized}, {"special", is_special}};
}

Json token_before(const std::string& token, size_t id) {
  return {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
          {"pair",
           {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
          {"special_tokens", {{token, {{"id", token}, {"ids", {id}}, {"tokens", {token}}}}}}};
}

}  // namespace atl::tokenizer
