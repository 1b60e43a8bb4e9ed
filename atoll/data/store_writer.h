#pragma once
// A token store while it is made. Everything is written under a temporary name beside the target,
// synced and renamed at the end: a reader sees a whole store or none, and a failure leaves nothing
// behind. One owner thread.
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "atoll/data/token_store.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::data {

struct StoreTarget {
  /// A link stands for the folder it leads to.
  std::filesystem::path folder;
  /// Replace a store that is already there; UsageError otherwise.
  bool overwrite = false;
};

/// A document as it is written.
struct NewDocument {
  Split split = Split::kTrain;  // split_of() its text.
  int64_t text_bytes = 0;
  std::string id;
  std::string source;
  int64_t location = 0;
};

class StoreWriter {
 public:
  /// `info` says the type of the tokens, the validation share, the sources and the shard; the rest
  /// comes from the tokenizer, which must outlive the writer. Throws UsageError when the target
  /// must not be written or the share is out of range, InputError when it cannot.
  StoreWriter(const StoreTarget& target, const tokenizer::Tokenizer& tokenizer, StoreInfo info);
  ~StoreWriter();

  /// `ids` end with end-of-text. Throws InputError when the disk is full.
  void add(const NewDocument& document, std::span<const tokenizer::TokenId> ids);
  /// Appends all documents of a store, each to the part it is in. Throws InputError when the store
  /// is damaged: its hashes are checked. `progress` is told after each document how many tokens of
  /// the store are done.
  void append(const TokenStore& store, const std::function<void(int64_t tokens_done)>& progress);

  /// Gives the store its name. Throws InputError when no document was added that trains (a shard
  /// may be empty), or when the disk is full; Interrupted after Ctrl-C, if interrupts are watched.
  StoreInfo finish();

 private:
  struct Draft;
  const tokenizer::Tokenizer& tokenizer_;
  std::filesystem::path target_;
  StoreInfo info_;
  std::unique_ptr<Draft> draft_;
};

}  // namespace atl::data
