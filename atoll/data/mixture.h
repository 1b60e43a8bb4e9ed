#pragma once
// What a run reads: a token store, or several of them mixed by weight. A mixture is a folder with a
// mixture.json that names its stores, made by `atoll data mix`; the tokens stay where they are.
// docs/formats_data.md has the file.
//
// Reading is thread-safe. The mixture must outlive every Batches made from it.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/data/token_store.h"

namespace atl::data {

/// One line of mixture.json.
struct MixedStore {
  std::string path;  // Relative to the mixture's folder, or absolute.
  double weight = 0;
  std::string digest;  // Of the store.

  void visit(auto&& field) {
    field("path", path), field("weight", weight), field("digest", digest);
  }
};

std::string format_mixture(const std::vector<MixedStore>& stores);
/// Throws InputError naming `name` and the key at anything missing, of a wrong type or edited.
std::vector<MixedStore> parse_mixture(std::string_view text, const std::string& name);

class Mixture {
 public:
  /// Opens a folder of either kind; a store is a mixture of one. Throws InputError as TokenStore
  /// does, where a store is not the one that was mixed, and where tokenizers differ.
  static Mixture open(const std::filesystem::path& folder);

  const std::vector<TokenStore>& stores() const { return stores_; }
  const std::vector<double>& weights() const { return weights_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// SHA-256 in hexadecimal of all that decides a batch: the store's own digest, or one of weights
  /// and digests. Where the stores lie is left out.
  std::string digest() const;
  int64_t vocab_size() const { return stores_.front().info().vocab_size; }
  int64_t end_of_text() const { return stores_.front().info().end_of_text; }
  std::filesystem::path tokenizer_file() const { return stores_.front().tokenizer_file(); }
  /// Throws InputError unless the stores were packed with exactly this tokenizer.
  void require_tokenizer(const tokenizer::Tokenizer& tokenizer) const {
    stores_.front().require_tokenizer(tokenizer);
  }

 private:
  Mixture(std::filesystem::path folder, std::vector<TokenStore> stores, std::vector<double> weights)
      : folder_(std::move(folder)), stores_(std::move(stores)), weights_(std::move(weights)) {}

  std::filesystem::path folder_;
  std::vector<TokenStore> stores_;
  std::vector<double> weights_;
};

/// Whether `folder` says that it holds a token store or a mixture.
bool holds_tokens(const std::filesystem::path& folder);

/// Makes the folder `target` with a mixture.json of these stores. Throws UsageError when `target`
/// exists (a mixture may be replaced with `overwrite`) or a weight is not positive, InputError when
/// stores cannot be mixed: another tokenizer, the same store twice, nothing to train on.
Mixture mix_stores(const std::vector<std::pair<std::filesystem::path, double>>& stores,
                   const std::filesystem::path& target, bool overwrite);

}  // namespace atl::data
