#pragma once
// Small SentencePiece-style tokenizers for tests and fuzz targets.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace atl::data {

/// As Llama 2's: ids 0 to 2 are <unk>, <s>, </s>, 3 to 258 the bytes, then `tokens`.
inline std::string sample_llama_json(const std::vector<std::string>& tokens,
                                     const std::vector<std::string>& merges) {
  nlohmann::json json = nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                     {"id": 1, "content": "<s>", "special": true},
                     {"id": 2, "content": "</s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "pre_tokenizer": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true}})");
  nlohmann::json& vocabulary = json["model"]["vocab"];
  vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = byte + 3;
  for (const std::string& token : tokens) vocabulary[token] = vocabulary.size();
  json["model"]["merges"] = merges;
  return json.dump();
}

/// A field of a protobuf message, all of them short.
inline std::string short_field(int number, std::string_view bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} +
         std::string(bytes);
}
inline std::string short_field(int number, int value) {
  std::string out;
  for (unsigned rest = static_cast<unsigned>(number) << 3; true; rest >>= 7) {
    out += static_cast<char>((rest & 127) | (rest > 127 ? 128 : 0));
    if (rest <= 127) break;
  }
  return out + static_cast<char>(value);
}
/// SentencePiece's `type` numbers: 1 is a plain piece, 2 <unk>, 3 a control, 4 user defined.
inline std::string sample_piece(std::string_view text, float score, int type = 1) {
  std::string bytes(sizeof(score), '\0');
  std::memcpy(bytes.data(), &score, sizeof(score));
  return short_field(1, short_field(1, text) + "\x15" + bytes + short_field(3, type));
}
/// A model of these pieces: 1 is Unigram, 2 BPE. `rules`: more fields of its normalizer.
inline std::string sample_sentence_piece(int model_type, const std::vector<std::string>& pieces,
                                         const std::string& rules = "") {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all + short_field(2, short_field(3, model_type)) +
         short_field(3, short_field(4, 0) + rules);
}

}  // namespace atl::data
