#pragma once
// A small SentencePiece-style tokenizer.json for tests and fuzz targets.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
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

}  // namespace atl::data
