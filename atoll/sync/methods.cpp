// Which methods there are.
#include <fmt/format.h>

#include "atoll/base/error.h"
#include "atoll/sync/cocktail_sgd.h"
#include "atoll/sync/data_parallel.h"
#include "atoll/sync/demo.h"
#include "atoll/sync/diloco.h"
#include "atoll/sync/eager_diloco.h"
#include "atoll/sync/single.h"
#include "atoll/sync/sparse_loco.h"
#include "atoll/sync/strategy.h"
#include "atoll/sync/streaming_diloco.h"

namespace atl::sync {

std::unique_ptr<Strategy> make_strategy(const SyncOptions& options, Replica replica,
                                        collective::Averager& averager, const Clock& clock) {
  if (options.method == "single") {
    if (averager.num_members() > 1) {
      throw UsageError(
          fmt::format("sync.method = 'single' trains one island, and there are {}; "
                      "choose diloco or data_parallel",
                      averager.num_members()));
    }
    return std::make_unique<Single>(options, std::move(replica), averager, clock);
  }
  if (options.method == "data_parallel") {
    return std::make_unique<DataParallel>(options, std::move(replica), averager, clock);
  }
  if (options.method == "diloco") {
    return std::make_unique<DiLoCo>(options, std::move(replica), averager, clock);
  }
  if (options.method == "cocktail_sgd") {
    return std::make_unique<CocktailSgd>(options, std::move(replica), averager, clock);
  }
  if (options.method == "sparse_loco") {
    return std::make_unique<SparseLoCo>(options, std::move(replica), averager, clock);
  }
  if (options.method == "demo") {
    return std::make_unique<DeMo>(options, std::move(replica), averager, clock);
  }
  if (options.method == "eager_diloco" || options.method == "delayed_diloco") {
    return std::make_unique<EagerDiLoCo>(options, std::move(replica), averager, clock);
  }
  if (options.method == "streaming_diloco") {
    return std::make_unique<StreamingDiLoCo>(options, std::move(replica), averager, clock);
  }
  throw UsageError(fmt::format("unknown sync.method '{}'", options.method));
}

}  // namespace atl::sync
