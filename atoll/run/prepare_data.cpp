#include "atoll/run/prepare_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/data/corpus.h"
#include "atoll/data/mixture.h"
#include "atoll/data/pack.h"
#include "atoll/data/token_store.h"
#include "atoll/data/tokenizer.h"
#include "atoll/data/tokenizer_trainer.h"
#include "atoll/run/run_folder.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;

data::Tokenizer make_tokenizer(const data::Corpus& corpus, int64_t vocab_size, const fs::path& file,
                               const Clock& clock) {
  data::WordCounts words;
  {
    ProgressBar bar("counting words", static_cast<double>(corpus.total_bytes()), clock);
    corpus.for_each([&](const data::CorpusDocument& document, int64_t bytes_done) {
      words.add(document.text);
      bar.update(static_cast<double>(bytes_done));
    });
  }
  ProgressBar bar("training the tokenizer", static_cast<double>(vocab_size), clock);
  write_file_atomically(
      file, data::train_tokenizer(words, {.vocab_size = vocab_size}, [&](int64_t num_ids) {
        bar.update(static_cast<double>(num_ids));
      }));
  return data::Tokenizer::load(file);
}

/// What a store was made of, first line: the text; the others: how.
std::string recipe_of(const RunConfig& config, const fs::path& tokenizer_file) {
  const DataOptions& options = config.data;
  const std::string tokenizer = tokenizer_file.empty()
                                    ? fmt::format("vocab_size = {}", options.vocab_size)
                                    : "tokenizer " + data::Tokenizer::load(tokenizer_file).sha256();
  return fmt::format("{}\n{}\nvalidation_share = {}\nsequence_length = {}\n",
                     options.path.empty() ? "" : fs::weakly_canonical(options.path).string(),
                     tokenizer, options.validation_share, config.train.sequence_length);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

data::StoreInfo pack_with(double share, const data::Corpus& corpus,
                          const data::Tokenizer& tokenizer, const fs::path& store,
                          const Clock& clock) {
  ProgressBar bar("packing", static_cast<double>(corpus.total_bytes()), clock);
  return data::pack(corpus, tokenizer, store, {.validation_share = share, .overwrite = true},
                    [&](const data::PackProgress& done) {
                      bar.update(static_cast<double>(done.bytes_done));
                    })
      .info;
}

/// Packs with data.validation_share, or with the first of its doubles that validates on a row.
void pack(const data::Corpus& corpus, const data::Tokenizer& tokenizer, const fs::path& store,
          const RunConfig& config, const Clock& clock) {
  constexpr double kMaxShare = 0.5;
  const double asked = config.data.validation_share;
  const int64_t row = config.train.sequence_length;
  data::StoreInfo info = pack_with(asked, corpus, tokenizer, store, clock);
  const int64_t num_documents = info.train.num_documents + info.validation.num_documents;
  double share = asked;
  while (info.validation.num_tokens < row && num_documents > 1 && share > 0 && share < kMaxShare) {
    share = std::min(kMaxShare, 2 * share);
    info = pack_with(share, corpus, tokenizer, store, clock);
  }
  if (info.validation.num_tokens < row) {
    fs::remove_all(store);
    throw InputError(fmt::format(
        "the text is too small to train and validate on: {} tokens in {} documents, of which {} "
        "tokens validate with data.validation_share = {}, and a row needs {} "
        "(train.sequence_length); give it more text or more documents, or choose shorter rows",
        info.train.num_tokens + info.validation.num_tokens, num_documents,
        info.validation.num_tokens, share, row));
  }
  if (share != asked) {
    fmt::print(stderr,
               "atoll: data.validation_share is {} and not {}: the documents are few, and "
               "validation needs a row of {} tokens\n",
               share, asked, row);
  }
}

}  // namespace

fs::path prepare_store(const RunConfig& config, const fs::path& folder,
                       const fs::path& tokenizer_file, const Clock& clock) {
  const DataOptions& options = config.data;
  if (!options.path.empty() && data::holds_tokens(options.path)) return options.path;
  const fs::path store = folder / "data";
  const fs::path recipe_file = folder / "data-origin";
  const std::string recipe = recipe_of(config, tokenizer_file);
  if (data::holds_tokens(store)) {
    const std::string before = fs::exists(recipe_file) ? read_file(recipe_file) : recipe;
    const std::string text_before = first_line(before);
    if (before == recipe) return store;
    if (was_started(folder)) {
      if (options.path.empty() || text_before == first_line(recipe)) return store;
      throw UsageError(fmt::format(
          "the run in '{}' was packed from {}, not from '{}'; leave --data out to go on, or choose "
          "another --run",
          folder.string(), text_before.empty() ? "the Python sources" : "'" + text_before + "'",
          options.path));
    }
  }

  data::CorpusOptions corpus_options;
  if (!options.path.empty()) corpus_options.inputs = {options.path};
  const data::Corpus corpus(corpus_options);
  const data::Tokenizer tokenizer =
      tokenizer_file.empty()
          ? make_tokenizer(corpus, options.vocab_size, folder / "tokenizer.json", clock)
          : data::Tokenizer::load(tokenizer_file);
  pack(corpus, tokenizer, store, config, clock);
  write_file_atomically(recipe_file, recipe);
  return store;
}

}  // namespace atl::run
