#pragma once
// Whether two tokenizers are one, as far as trying can tell.
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

/// Whether `b` gives the ids of `a` to texts of all kinds, to each of its first `num_ids` tokens,
/// and to special ones of them within a text; and puts the same tokens around one.
bool give_same_ids(const Tokenizer& a, const Tokenizer& b, int64_t num_ids);

}  // namespace atl::tokenizer
