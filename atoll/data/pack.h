#pragma once
// Documents -> a token store. Everything is written under a temporary name beside the target,
// synced and renamed at the end: a reader sees a whole store or none, and a failure leaves nothing
// behind. One owner thread.
#include <cstdint>
#include <filesystem>
#include <functional>

#include "atoll/data/corpus.h"
#include "atoll/data/token_store.h"
#include "atoll/data/tokenizer.h"

namespace atl::data {

struct PackOptions {
  /// Share of the documents kept for validation, 0 to 1: those whose hash falls below it.
  double validation_share = 0.05;
  /// Replace a store that is already there.
  bool overwrite = false;
};

struct PackReport {
  StoreInfo info;
  int64_t num_replaced = 0;  // Bad byte sequences that were read as U+FFFD.
};

/// Packs all of `corpus` into the new folder `target`. Special tokens written out in a document are
/// plain text there: only the packer ends a document. `progress` is told the bytes read so far.
/// A `target` that is a link stands for the folder it leads to.
/// Throws InputError when the corpus is empty, has no training document, cannot be read, or when
/// the disk is full; UsageError when `target` exists; Interrupted between two documents after
/// Ctrl-C, if interrupts are watched.
PackReport pack(const Corpus& corpus, const Tokenizer& tokenizer,
                const std::filesystem::path& target, const PackOptions& options,
                const std::function<void(int64_t bytes_done)>& progress);

}  // namespace atl::data
