#pragma once
// A token store while it is made. Everything is written under a temporary name beside the target,
// synced and renamed at the end: a reader sees a whole store or none, and a failure leaves nothing
// behind. One owner thread.
#include <filesystem>
#include <memory>
#include <span>

#include "atoll/data/corpus.h"
#include "atoll/data/token_store.h"
#include "atoll/data/tokenizer.h"

namespace atl::data {

struct StoreTarget {
  /// A link stands for the folder it leads to.
  std::filesystem::path folder;
  /// Replace a store that is already there; UsageError otherwise.
  bool overwrite = false;
};

class StoreWriter {
 public:
  /// `info` says the type of the tokens, the validation share and the sources; the rest comes from
  /// the tokenizer, which must outlive the writer. Throws UsageError when the target must not be
  /// written or the share is out of range, InputError when it cannot.
  StoreWriter(const StoreTarget& target, const Tokenizer& tokenizer, StoreInfo info);
  ~StoreWriter();

  /// Appends a document to the part that its text falls to. `ids` end with end-of-text. Throws
  /// InputError when the disk is full.
  void add(const CorpusDocument& document, std::span<const TokenId> ids);

  /// Gives the store its name. Throws InputError when no document was added that trains, or when
  /// the disk is full; Interrupted after Ctrl-C, if interrupts are watched.
  StoreInfo finish();

 private:
  struct Draft;
  const Tokenizer& tokenizer_;
  std::filesystem::path target_;
  StoreInfo info_;
  std::unique_ptr<Draft> draft_;
};

}  // namespace atl::data
