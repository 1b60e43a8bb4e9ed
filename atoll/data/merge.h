#pragma once
// Several token stores to one, document behind document. The shards of a corpus give the store that
// packing it in one piece gives, byte for byte. One owner thread.
#include <cstdint>
#include <functional>
#include <vector>

#include "atoll/data/store_writer.h"
#include "atoll/data/token_store.h"

namespace atl::data {

/// Shards come in their own order, other stores in that of `stores`. `progress` is told how many
/// tokens are done. Throws InputError unless all have one tokenizer, one type of tokens and one
/// validation share, and either all shards of one corpus are there, each once, or none is a shard
/// and no two are the same store; also where a store is damaged. Else as StoreWriter does.
StoreInfo merge_stores(std::vector<TokenStore> stores, const StoreTarget& target,
                       const std::function<void(int64_t tokens_done)>& progress);

}  // namespace atl::data
