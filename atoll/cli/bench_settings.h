#pragma once
// Which settings change what `atoll bench train-step` measures. LibTorch-free.
#include <algorithm>
#include <array>
#include <string_view>

namespace atl::cli {

/// A step of one process on random rows knows no schedule, no teacher, no checkpoint.
inline bool is_measured(std::string_view name) {
  constexpr auto kTrain = std::to_array<std::string_view>(
      {"batch_rows", "micro_batch_rows", "sequence_length", "seed", "optimizer", "lr", "beta1",
       "beta2", "eps", "muon_momentum", "muon_lr_ratio", "weight_decay", "weight_decay_mode",
       "grad_clip", "z_loss", "threads", "device", "precision", "activation_checkpointing"});
  constexpr std::string_view kSection = "train.";
  if (!name.starts_with(kSection)) return name.starts_with("model.");
  return std::ranges::find(kTrain, name.substr(kSection.size())) != kTrain.end();
}

}  // namespace atl::cli
