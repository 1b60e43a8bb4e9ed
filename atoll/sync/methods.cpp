// What makes each method of the table in method.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/method/method.h"
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

namespace {

template <typename T>
std::unique_ptr<Strategy> make(const method::SyncOptions& options, Replica replica,
                               collective::Averager& averager, const Clock& clock) {
  return std::make_unique<T>(options, std::move(replica), averager, clock);
}

struct Constructor {
  std::string_view method;
  std::unique_ptr<Strategy> (*make)(const method::SyncOptions&, Replica, collective::Averager&,
                                    const Clock&);
};
constexpr Constructor kConstructors[] = {
    {"single", make<Single>},
    {"data_parallel", make<DataParallel>},
    {"diloco", make<DiLoCo>},
    {"streaming_diloco", make<StreamingDiLoCo>},
    {"eager_diloco", make<EagerDiLoCo>},
    {"delayed_diloco", make<EagerDiLoCo>},
    {"sparse_loco", make<SparseLoCo>},
    {"cocktail_sgd", make<CocktailSgd>},
    {"demo", make<DeMo>},
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const method::SyncOptions& options, Replica replica,
                                        collective::Averager& averager, const Clock& clock) {
  const method::Method& method = method::method_of(options);
  if (method.is_for_one && averager.num_members() > 1) {
    throw UsageError(
        fmt::format("sync.method = '{}' trains one island, and there are {}; "
                    "choose diloco or data_parallel",
                    method.name, averager.num_members()));
  }
  const auto found = std::ranges::find(kConstructors, method.name, &Constructor::method);
  ATOLL_CHECK(found != std::end(kConstructors), "every method has a constructor");
  return found->make(options, std::move(replica), averager, clock);
}

}  // namespace atl::sync
