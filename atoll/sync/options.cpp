#include "atoll/sync/options.h"

#include <fmt/format.h>

#include "atoll/base/error.h"

namespace atl::sync {

void SyncOptions::visit(SettingList& list) {
  list.section("sync", "when and how the islands agree");
  list.add(
      "method", method,
      "single: one island; data_parallel: mean gradient every step; diloco: mean outer gradient "
      "every sync_every steps; streaming_diloco: the same fragment by fragment, beside training",
      {"single", "data_parallel", "diloco", "streaming_diloco"});
  list.add("sync_every", sync_every, "inner steps between two syncs of a parameter (H)",
           {.min = 1});
  list.add("outer_lr", outer_lr, "diloco: outer learning rate", {.min = 0, .max = 10});
  list.add("outer_momentum", outer_momentum, "diloco: outer momentum", {.min = 0, .max = 0.9999});
  list.add("outer_nesterov", outer_nesterov, "diloco: Nesterov momentum; false = heavy ball");
  list.add("num_fragments", num_fragments,
           "streaming_diloco: fragments that are synchronised in turn (P); 1 = all at once",
           {.min = 1, .max = 1'000'000});
  list.add(
      "fragment_pattern", fragment_pattern,
      "streaming_diloco: strided or sequential layers (embedding and head apart), or balanced: "
      "equal sizes, cut anywhere",
      {"strided", "sequential", "balanced"});
  list.add("fragment_sync_delay", fragment_sync_delay,
           "streaming_diloco: inner steps while a fragment travels (tau); below sync_every",
           {.min = 0});
  list.add(
      "fragment_update_alpha", fragment_update_alpha,
      "streaming_diloco: share of the local value that is kept at a sync (alpha); 0 = take the "
      "global one, 1 = no communication",
      {.min = 0, .max = 1});
  list.add("codec", codec, "how numbers travel: fp32 (exact) or bf16 (half the bytes)",
           {"fp32", "bf16"});
}

void check(const SyncOptions& options) {
  if (options.method != "streaming_diloco") return;
  if (options.fragment_sync_delay >= options.sync_every) {
    throw UsageError(
        fmt::format("sync.fragment_sync_delay = {} must be below sync.sync_every = {}: a fragment "
                    "arrives before it is sent again",
                    options.fragment_sync_delay, options.sync_every));
  }
  if (options.num_fragments > options.sync_every) {
    throw UsageError(fmt::format(
        "sync.num_fragments = {} is over sync.sync_every = {}: a step sends at most one",
        options.num_fragments, options.sync_every));
  }
}

int64_t period(const SyncOptions& options) {
  return options.method == "single" || options.method == "data_parallel" ? 1 : options.sync_every;
}

}  // namespace atl::sync
