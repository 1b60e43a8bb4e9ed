// Files of strangers, nearly whole: each is a tokenizer or refused, and what is one encodes any
// text to ids that it knows.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "atoll/base/base64.h"
#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/testing/sample_gguf.h"
#include "atoll/testing/sample_tokenizer.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {
namespace {

std::string model(int type) {
  using data::sample_piece;
  // A table whose trie has two units, and one text.
  const std::string table("\x08\0\0\0\x00\x04\0\0\x41\0\0\0x\0", 14);
  return data::sample_sentence_piece(
      type,
      {sample_piece("<unk>", 0, 2), sample_piece("</s>", 0, 3), sample_piece("<x>", 0, 4),
       sample_piece("\u2581a", -1), sample_piece("ab", 0), sample_piece("a", -2),
       sample_piece("\u2581", -4)},
      data::short_field(2, table));
}

std::string tekken() {
  nlohmann::json file = {
      {"config",
       {{"pattern", "\\w+|\\W+"}, {"default_vocab_size", 8}, {"default_num_special_tokens", 3}}}};
  for (const char* token : {"a", "b", " ", "ab", "ba"}) {
    file["vocab"].push_back({{"rank", file["vocab"].size()}, {"token_bytes", to_base64(token)}});
  }
  return file.dump();
}

std::string gguf(const char* model) {
  codec::SampleGguf file;
  file.text("tokenizer.ggml.model", model);
  file.text("tokenizer.ggml.pre", "qwen2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "\u2581", "\u0120", "</s>", "ab"});
  file.wholes("tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 1});
  file.reals("tokenizer.ggml.scores", {-1, -2, -3, -4, 0, -5});
  file.texts("tokenizer.ggml.merges", {"a b"});
  file.whole("tokenizer.ggml.bos_token_id", 4);
  file.text("tokenizer.chat_template", "{{ bos_token }}");
  return file.file();
}

Tokenizer tokenizer_of(const std::string& file) {
  if (!file.starts_with("GGUF")) return Tokenizer::from_bytes(file, "fuzz");
  const codec::GgufFile gguf(as_byte_span(file), "fuzz");
  config_of_gguf(gguf);
  return Tokenizer::from_json(json_of_gguf(gguf), "fuzz");
}

void read(const std::string& file) {
  try {
    const Tokenizer tokenizer = tokenizer_of(file);
    for (const SpecialText special : {SpecialText::kToken, SpecialText::kPlain}) {
      tokenizer.decode(tokenizer.encode("ab <x> </s>\u00e9e\u0301\r\n b\u2581a  ", special));
    }
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace atl::tokenizer;
  static const std::array<std::string, 7> kFiles = {
      model(1),
      model(2),
      tekken(),
      gguf("gpt2"),
      gguf("llama"),
      gguf("t5"),
      atl::data::sample_llama_json({"\u2581", "a", "b", "ab"}, {"a b"})};
  read(std::string(reinterpret_cast<const char*>(data), size));
  if (size == 0) return 0;
  std::string file = kFiles[data[0] % kFiles.size()];
  for (size_t i = 1; i + 2 < size && i < 30; i += 3) {
    file[(size_t{data[i]} << 8 | data[i + 1]) % file.size()] = static_cast<char>(data[i + 2]);
  }
  read(file);
  return 0;
}
