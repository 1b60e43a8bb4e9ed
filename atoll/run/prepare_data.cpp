#include "atoll/run/prepare_data.h"

#include <fmt/format.h>

#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/data/corpus.h"
#include "atoll/data/pack.h"
#include "atoll/data/token_store.h"
#include "atoll/data/tokenizer.h"
#include "atoll/data/tokenizer_trainer.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;

bool is_store(const fs::path& path) { return fs::exists(path / "store.json"); }

data::Tokenizer make_tokenizer(const data::Corpus& corpus, int64_t vocab_size, const fs::path& file,
                               const Clock& clock) {
  data::WordCounts words;
  {
    ProgressBar bar("counting words", static_cast<double>(corpus.total_bytes()), clock);
    corpus.for_each([&](const data::CorpusDocument& document) {
      words.add(document.text);
      bar.update(static_cast<double>(corpus.bytes_done()));
    });
  }
  ProgressBar bar("training the tokenizer", static_cast<double>(vocab_size), clock);
  write_file_atomically(
      file, data::train_tokenizer(words, {.vocab_size = vocab_size}, [&](int64_t num_ids) {
        bar.update(static_cast<double>(num_ids));
      }));
  return data::Tokenizer::load(file);
}

}  // namespace

fs::path prepare_store(const DataOptions& options, const fs::path& folder,
                       const fs::path& tokenizer_file, const Clock& clock) {
  if (!options.path.empty() && is_store(options.path)) return options.path;
  const fs::path store = folder / "data";
  const fs::path origin_file = folder / "data-origin";  // What the store was packed from.
  const std::string origin =
      options.path.empty() ? "" : fs::weakly_canonical(options.path).string();
  if (is_store(store)) {
    const std::string before = fs::exists(origin_file) ? read_file(origin_file) : origin;
    if (!options.path.empty() && before != origin) {
      throw UsageError(
          fmt::format("the run in '{}' was packed from {}, not from '{}'; leave --data "
                      "out to go on, or choose another --run",
                      folder.string(), before.empty() ? "the Python sources" : "'" + before + "'",
                      options.path));
    }
    return store;
  }

  data::CorpusOptions corpus_options;
  if (!options.path.empty()) corpus_options.inputs = {options.path};
  const data::Corpus corpus(corpus_options);
  const data::Tokenizer tokenizer =
      tokenizer_file.empty()
          ? make_tokenizer(corpus, options.vocab_size, folder / "tokenizer.json", clock)
          : data::Tokenizer::load(tokenizer_file);
  ProgressBar bar("packing", static_cast<double>(corpus.total_bytes()), clock);
  data::pack(corpus, tokenizer, store, {.validation_share = options.validation_share},
             [&](int64_t bytes_done) { bar.update(static_cast<double>(bytes_done)); });
  write_file_atomically(origin_file, origin);
  return store;
}

}  // namespace atl::run
