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
#include "atoll/run/run_folder.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;

tokenizer::Tokenizer make_tokenizer(const data::Corpus& corpus, int64_t vocab_size,
                                    const fs::path& file, const Clock& clock) {
  tokenizer::WordCounts words;
  {
    ProgressBar bar("counting words", static_cast<double>(corpus.total_bytes()), clock);
    corpus.for_each([&](const data::CorpusDocument& document, int64_t bytes_done) {
      words.add(document.text);
      bar.update(static_cast<double>(bytes_done));
    });
  }
  ProgressBar bar("training the tokenizer", static_cast<double>(vocab_size), clock);
  write_file_atomically(
      file, tokenizer::train_tokenizer(words, {.vocab_size = vocab_size}, [&](int64_t num_ids) {
        bar.update(static_cast<double>(num_ids));
      }));
  return tokenizer::Tokenizer::load(file);
}

/// What a store was made of, first line: the text; the others: how.
std::string recipe_of(const RunConfig& config, const fs::path& tokenizer_file) {
  const DataOptions& options = config.data;
  const std::string tokenizer =
      tokenizer_file.empty() ? fmt::format("vocab_size = {}", options.vocab_size)
                             : "tokenizer " + tokenizer::Tokenizer::load(tokenizer_file).sha256();
  return fmt::format("{}\n{}\nvalidation_share = {}\nsequence_length = {}\n",
                     options.path.empty() ? "" : fs::weakly_canonical(options.path).string(),
                     tokenizer, options.validation_share, config.train.sequence_length);
}

data::CorpusOptions corpus_options(const DataOptions& options) {
  data::CorpusOptions corpus;
  if (!options.path.empty()) corpus.inputs = {options.path};
  return corpus;
}

/// As the text is now: names, sizes, the last change.
std::string state_of(const data::Corpus& corpus) {
  return fmt::format("files = {}\nchanged = {}\n", corpus.fingerprint(),
                     corpus.last_change().time_since_epoch().count());
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

data::StoreInfo pack_with(double share, const data::Corpus& corpus,
                          const tokenizer::Tokenizer& tokenizer, const fs::path& store,
                          const Clock& clock) {
  ProgressBar bar("packing", static_cast<double>(corpus.total_bytes()), clock);
  return data::pack(corpus, tokenizer, store, {.validation_share = share, .overwrite = true},
                    [&](const data::PackProgress& done) {
                      bar.update(static_cast<double>(done.bytes_done));
                    })
      .info;
}

/// Packs with data.validation_share, or with the first of its doubles that validates on a row.
void pack(const data::Corpus& corpus, const tokenizer::Tokenizer& tokenizer, const fs::path& store,
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

std::optional<fs::path> find_store(const RunConfig& config, const fs::path& folder,
                                   const fs::path& tokenizer_file) {
  const DataOptions& options = config.data;
  if (!options.path.empty() && data::holds_tokens(options.path)) return options.path;
  const fs::path store = folder / "data";
  if (!data::holds_tokens(store)) return std::nullopt;
  const fs::path made_of = folder / "data-origin";
  const std::string recipe = recipe_of(config, tokenizer_file);
  const std::string before = fs::exists(made_of) ? read_file(made_of) : recipe;
  if (was_started(folder)) {
    const std::string text_before = first_line(before);
    if (options.path.empty() || text_before == first_line(recipe)) return store;
    throw UsageError(fmt::format(
        "the run in '{}' was packed from {}, not from '{}'; leave --data out to go on, or choose "
        "another --run",
        folder.string(), text_before.empty() ? "the Python sources" : "'" + text_before + "'",
        options.path));
  }
  if (!before.starts_with(recipe)) return std::nullopt;
  const bool is_gone = !options.path.empty() && !fs::exists(options.path);
  if (is_gone || before == recipe + state_of(data::Corpus(corpus_options(options)))) return store;
  return std::nullopt;
}

fs::path prepare_store(const RunConfig& config, const fs::path& folder,
                       const fs::path& tokenizer_file, const Clock& clock) {
  if (const auto found = find_store(config, folder, tokenizer_file)) return *found;
  const data::Corpus corpus(corpus_options(config.data));
  const std::string state = state_of(corpus);
  const tokenizer::Tokenizer tokenizer =
      tokenizer_file.empty()
          ? make_tokenizer(corpus, config.data.vocab_size, folder / "tokenizer.json", clock)
          : tokenizer::Tokenizer::load(tokenizer_file);
  pack(corpus, tokenizer, folder / "data", config, clock);
  write_file_atomically(folder / "data-origin", recipe_of(config, tokenizer_file) + state);
  return folder / "data";
}

}  // namespace atl::run
