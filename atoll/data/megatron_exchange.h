#pragma once
// Token stores to Megatron's files and back, token for token: a store goes around unchanged.
#include <cstdint>
#include <functional>
#include <string>

#include "atoll/data/megatron.h"
#include "atoll/data/store_writer.h"
#include "atoll/data/token_store.h"

namespace atl::data {

/// Told after each document how many tokens are done.
using TokenProgress = std::function<void(int64_t tokens_done)>;

/// Makes a token store of a Megatron store's documents, in their order. With a validation share of
/// 0 all of them train. Throws InputError unless each sequence is one document that ends with the
/// tokenizer's end-of-text, tokens are uint16 or int32, and all ids below the vocabulary; else as
/// StoreWriter does.
StoreInfo import_megatron(const MegatronStore& from, const tokenizer::Tokenizer& tokenizer,
                          const StoreTarget& target, double validation_share,
                          const TokenProgress& progress);

/// Writes one part of a token store as PREFIX.bin and PREFIX.idx, as uint16 where the store has
/// that, else as int32. Throws InputError when the part is empty; else as MegatronWriter does.
MegatronWriter::Hashes export_megatron(const TokenStore& from, Split split,
                                       const std::string& prefix, bool overwrite,
                                       const TokenProgress& progress);

}  // namespace atl::data
