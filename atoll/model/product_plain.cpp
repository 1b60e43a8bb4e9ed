// For any processor.
#define ATOLL_LANES 4
#define ATOLL_ROWS 6
#define ATOLL_TILE_ROWS 4
#define ATOLL_TILE_OUTPUTS(rows) ((rows) == 1 ? 8 : (rows) == 2 ? 4 : 3)
#include "atoll/model/dot_loops.h"

namespace atl::model {

const ProductKernel kPlainProduct = kKernel;

}  // namespace atl::model
