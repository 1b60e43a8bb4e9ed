#pragma once
// What a document table tells of a store: how long documents are, and where they come from.
// Memory grows with the number of sources, up to a bound. One owner thread.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/data/token_store.h"

namespace atl::data {

struct DocumentCounts {
  int64_t num_documents = 0;
  int64_t num_tokens = 0;  // End-of-text included.

  void add(int64_t tokens) {
    ++num_documents;
    num_tokens += tokens;
  }
};

struct StoreStatistics {
  /// Bucket b: documents of 2^b to 2^(b+1) - 1 tokens.
  std::vector<DocumentCounts> by_length;
  /// By the column src, as far as there are at most a million.
  std::map<std::string, DocumentCounts> by_source;
  DocumentCounts other_sources;

  void add(const Document& document);
};

/// Both parts of a store. Throws InputError as TokenStore::for_each_document().
StoreStatistics statistics_of(const TokenStore& store);

}  // namespace atl::data
