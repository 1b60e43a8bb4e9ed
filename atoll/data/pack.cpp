#include "atoll/data/pack.h"

#include "atoll/base/interrupt.h"
#include "atoll/data/store_writer.h"

namespace atl::data {

PackReport pack(const Corpus& corpus, const Tokenizer& tokenizer,
                const std::filesystem::path& target, const PackOptions& options,
                const std::function<void(int64_t bytes_done)>& progress) {
  const bool is_narrow = tokenizer.vocab_size() <= (1 << 16);
  StoreWriter writer({.folder = target, .overwrite = options.overwrite}, tokenizer,
                     {.type = is_narrow ? TokenType::kU16 : TokenType::kU32,
                      .validation_share = options.validation_share,
                      .sources = corpus.sources()});
  Encoder encoder(tokenizer);
  const TokenId end_of_text = tokenizer.end_of_text();
  std::vector<TokenId> ids;
  corpus.for_each([&](const CorpusDocument& document) {
    ids.clear();
    encoder.encode(document.text, SpecialText::kPlain, ids);
    ids.push_back(end_of_text);
    writer.add(document, ids);
    progress(corpus.bytes_done());
    throw_if_interrupted();  // The draft goes.
  });
  return {.info = writer.finish(), .num_replaced = encoder.num_replaced()};
}

}  // namespace atl::data
