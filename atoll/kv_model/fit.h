#pragma once
// A profile of a model's keys and values, fitted to real text: what each group of planes varies in
// where errors are dear, with which steps levels have so many bits, and how often numbers come.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "atoll/kv/profile.h"
#include "atoll/kv_model/sensitivity.h"
#include "atoll/model/model.h"

namespace atl::kv_model {

struct FitOptions {
  int64_t group_layers = 5;  // That are transformed together; fewer in the last group.
  /// Bits per element that levels aim at, without the tokens that stay exact.
  std::vector<double> transform_bits = {1.4, 1.05, 0.75};
  std::vector<double> vectorwise_bits = {2.15};
  /// Added to each plane's sensitivity, in parts of its mean: a few texts do not show all.
  double ridge = 0.1;
};

/// `texts`: each is read whole. `digest`: the model's, as blobs will name it. `done` (may be empty)
/// is called behind each text. Throws InputError where the model has no bfloat16 caches.
kv::Profile fit_profile(const model::Model& model, const std::string& digest,
                        std::span<const std::vector<int64_t>> texts, const Sensitivity& sensitivity,
                        const FitOptions& options, const std::function<void()>& done);

}  // namespace atl::kv_model
