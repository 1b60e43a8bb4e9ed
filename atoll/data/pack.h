#pragma once
// Documents -> a token store. One thread cuts the files, others parse and encode, the caller's
// writes: in the order of the documents, so the store does not depend on the number of threads.
// Everything is written under a temporary name beside the target, synced and renamed at the end: a
// reader sees a whole store or none, and a failure leaves nothing behind.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "atoll/data/corpus.h"
#include "atoll/data/token_store.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::data {

struct PackOptions {
  /// Share of the documents kept for validation, 0 to 1: those whose hash falls below it.
  double validation_share = 0.05;
  /// Replace a store that is already there.
  bool overwrite = false;
  /// Threads that encode; 0: as many as this process may use cores.
  int64_t num_threads = 0;
  /// Pack this part alone, to be merged with the others (data/merge.h).
  std::optional<Shard> shard;
};

struct PackReport {
  StoreInfo info;
  int64_t num_replaced = 0;       // Bad byte sequences that were read as U+FFFD.
  int64_t num_without_token = 0;  // See tokenizer::Encoder.
  LeftOut left_out;
  int64_t num_threads = 0;
};

struct PackProgress {
  int64_t bytes_done = 0;  // Of the corpus's files, as they are on disk.
  int64_t num_tokens = 0;
};

/// Packs all of `corpus`, or a shard of it, into the new folder `target`. Special tokens written
/// out in a document are plain text there: only the packer ends a document. In a corpus of chats
/// they are tokens, as the model reads its chats. A `target` that is a link stands for the folder
/// it leads to. Throws InputError when the corpus is empty, has no training document (a shard may),
/// cannot be read, or when the disk is full; UsageError when `target` exists; Interrupted after
/// Ctrl-C, if interrupts are watched.
PackReport pack(const Corpus& corpus, const tokenizer::Tokenizer& tokenizer,
                const std::filesystem::path& target, const PackOptions& options,
                const std::function<void(const PackProgress&)>& progress);

}  // namespace atl::data
