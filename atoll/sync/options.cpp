#include "atoll/sync/options.h"

namespace atl::sync {

void SyncOptions::visit(SettingList& list) {
  list.section("sync", "when and how the islands agree");
  list.add(
      "method", method,
      "single: one island; data_parallel: mean gradient every step; diloco: mean outer gradient "
      "every sync_every steps",
      {"single", "data_parallel", "diloco"});
  list.add("sync_every", sync_every, "diloco: inner steps between two syncs (H)", {.min = 1});
  list.add("outer_lr", outer_lr, "diloco: outer learning rate", {.min = 0, .max = 10});
  list.add("outer_momentum", outer_momentum, "diloco: outer momentum", {.min = 0, .max = 0.9999});
  list.add("outer_nesterov", outer_nesterov, "diloco: Nesterov momentum; false = heavy ball");
  list.add("codec", codec, "how numbers travel: fp32 (exact) or bf16 (half the bytes)",
           {"fp32", "bf16"});
}

}  // namespace atl::sync
