#pragma once
// Attention of few queries over keys in pages: what every new token of every answer needs. A page's
// keys lie as the product kernel reads them, so nothing is packed, and scores are kept by column
// until they are exponentials, so that no lane is idle. The bits are those of the general way
// (causal_attention.h).
#include <cstdint>

#include "atoll/model/causal_attention.h"

namespace atl::model {

/// Whether that way is meant for them: so few columns (queries times query heads of a key-value
/// head), of a text whose keys lie in pages.
bool are_few(const HeadSizes& sizes, const AttendingRow& row);

/// All queries of the row for one key-value head.
void attend_few(const HeadSizes& sizes, const AttendingRow& row, int64_t kv_head,
                const ProductKernel& kernel);

}  // namespace atl::model
