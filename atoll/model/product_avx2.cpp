// Compiled for x86-64-v3 (CMakeLists.txt), and called on such processors alone.
#if defined(__x86_64__)
#define ATOLL_LANES 8
#define ATOLL_ROWS 6
#include "atoll/model/product_loops.h"

namespace atl::model {

const ProductKernel kAvx2Product = kKernel;

}  // namespace atl::model
#endif
