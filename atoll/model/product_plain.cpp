// For any processor.
#define ATOLL_LANES 4
#define ATOLL_ROWS 6
#include "atoll/model/product_loops.h"

namespace atl::model {

const ProductKernel kPlainProduct = kKernel;

}  // namespace atl::model
