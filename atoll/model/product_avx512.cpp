// Compiled for x86-64-v4 (CMakeLists.txt), and called on such processors alone.
#if defined(__x86_64__)
#define ATOLL_LANES 16
#define ATOLL_ROWS 14
// Rows and outputs whose sums stay in registers.
#define ATOLL_TILE_ROWS 6
#define ATOLL_TILE_OUTPUTS(rows) ((rows) <= 3 ? 8 : (rows) == 4 ? 6 : 4)
#include "atoll/model/dot_loops.h"

namespace atl::model {

const ProductKernel kAvx512Product = kKernel;

}  // namespace atl::model
#endif
