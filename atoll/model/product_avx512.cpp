// Compiled for x86-64-v4 (CMakeLists.txt), and called on such processors alone.
#if defined(__x86_64__)
#define ATOLL_LANES 16
#define ATOLL_ROWS 14
#include "atoll/model/product_loops.h"

namespace atl::model {

const ProductKernel kAvx512Product = kKernel;

}  // namespace atl::model
#endif
