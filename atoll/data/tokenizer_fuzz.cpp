// Any bytes encode without trouble and decode to the same bytes, repaired where they were not
// UTF-8; scanning and the heap merge alike; pieces and caches do not show.
#include <cstdint>

#include "atoll/base/check.h"
#include "atoll/data/tokenizer.h"
#include "atoll/data/tokenizer_trainer.h"
#include "atoll/data/utf8.h"

namespace atl::data {
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

void check(std::string_view text) {
  static const Tokenizer tokenizer = make_tokenizer();
  static Encoder encoder(tokenizer);
  for (const SpecialText special : {SpecialText::kToken, SpecialText::kPlain}) {
    std::vector<TokenId> ids;
    encoder.encode(text, special, ids);
    int64_t num_replaced = 0;
    const std::string repaired = repair_utf8(text, num_replaced);
    ATOLL_CHECK(valid_utf8_prefix(repaired) == repaired.size());
    ATOLL_CHECK((num_replaced == 0) == (repaired == text) || num_replaced > 0);
    ATOLL_CHECK(tokenizer.decode(ids) == repaired);
    ATOLL_CHECK(ids == tokenizer.encode(text, special));
  }
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  atl::data::check(text);
  // The same bytes drawn from few characters: words, runs and merges that random bytes never make.
  std::string dense(text);
  for (char& c : dense) c = " \nthecas1'=!"[static_cast<uint8_t>(c) % 12];
  atl::data::check(dense);
  return 0;
}
