// Files of strangers, nearly whole: each is a tokenizer or refused, and what is one encodes any
// text to ids that it knows.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "atoll/base/base64.h"
#include "atoll/base/error.h"
#include "atoll/testing/sample_tokenizer.h"
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

void read(const std::string& file) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_bytes(file, "fuzz");
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
  static const std::array<std::string, 4> kFiles = {
      model(1), model(2), tekken(),
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
