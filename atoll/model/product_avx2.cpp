// Compiled for x86-64-v3 (CMakeLists.txt), and called on such processors alone.
#if defined(__x86_64__)
#define ATOLL_LANES 8
#define ATOLL_ROWS 6
#define ATOLL_TILE_ROWS 4
#define ATOLL_TILE_OUTPUTS(rows) ((rows) == 1 ? 8 : (rows) == 2 ? 4 : 3)
#include "atoll/model/dot_loops.h"

namespace atl::model {

const ProductKernel kAvx2Product = kKernel;

}  // namespace atl::model
#endif
