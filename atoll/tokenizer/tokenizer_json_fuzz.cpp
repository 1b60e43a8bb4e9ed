// tokenizer.json from strangers: it loads, and then encodes and decodes, or is refused with an
// InputError. Inputs are edits of a good file, so that they pass the first checks.
#include <array>
#include <cstdint>

#include "atoll/base/error.h"
#include "atoll/testing/sample_tokenizer.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::tokenizer {
namespace {

void try_load(std::string_view json) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "fuzz");
    const auto ids = tokenizer.encode("the cat <|endoftext|>\n\u00e9", SpecialText::kToken);
    tokenizer.decode(tokenizer.with_special_tokens(ids));
  } catch (const InputError&) {  // Refused, as it should be.
  }
}

std::string make_json() {
  WordCounts words;
  words.add("the cat the cat");
  return train_tokenizer(words, {.vocab_size = 262, .min_frequency = 2}, [](int64_t) {});
}

}  // namespace
}  // namespace atl::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::array<std::string, 2> good = {
      atl::tokenizer::make_json(),
      atl::data::sample_llama_json({"\u2581", "t", "h", "\u2581t"}, {"\u2581 t"})};
  atl::tokenizer::try_load({reinterpret_cast<const char*>(data), size});
  // Each four bytes: where, how much to cut, how much of the input to put there instead.
  std::string edited = good[size % 2];
  for (size_t i = 0; i + 4 <= size && i < 32; i += 4) {
    const size_t at = (data[i] * 256U + data[i + 1]) % (edited.size() + 1);
    const size_t put = data[i + 3] % 8;
    edited.replace(at, data[i + 2] % 8, reinterpret_cast<const char*>(data + i),
                   put < size - i ? put : size - i);
  }
  atl::tokenizer::try_load(edited);
  return 0;
}
