#pragma once
// For tests of sweeps: a small one, and its points.
#include <string>

#include "atoll/sweep/sweep_settings.h"

namespace atl::sweep {

inline constexpr const char* kModels =
    "[settings.model]\nmax_positions = 32\nnum_heads = 2\nnum_kv_heads = 2\n"
    "[sizes.a]\nhidden_size = 8\nintermediate_size = 16\nnum_layers = 1\n"
    "[sizes.b]\nhidden_size = 16\nintermediate_size = 32\nnum_layers = 1\n";
inline constexpr const char* kTrain = "[settings.train]\nsequence_length = 32\n";
inline constexpr const char* kGrid =
    "[[grid]]\nname = 'g'\nreplicas = [0, 2]\nlr = [1e-3, 2e-3]\nouter_lr = 0.6\nsync_every = 30\n"
    "batch_tokens = 512\n";

inline SweepSettings settings_of(const std::string& text,
                                 const SweepStore& store = {"/x", "d1", 500}) {
  SweepSettings settings(parse_sweep(text, "s.toml"), "s.toml");
  settings.use(store);
  return settings;
}
inline SweepSettings usual() { return settings_of(std::string(kTrain) + kModels + kGrid); }

inline SweepPoint point_of(int64_t replicas, double lr = 1e-3) {
  SweepPoint point{.cell = {"a", replicas, "diloco", 30, 1}, .at = {lr, 0.6, 512}};
  if (replicas == 0) point = {.cell = {"a", 0, "data_parallel", 0, 1}, .at = {lr, 0, 512}};
  return point;
}

}  // namespace atl::sweep
