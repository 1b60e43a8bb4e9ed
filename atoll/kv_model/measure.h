#pragma once
// The rate curve of ways to keep keys and values: how many bits an element takes, all in, and how
// much worse the model predicts what follows on keys and values that came back.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/kv_model/schemes.h"
#include "atoll/model/model.h"

namespace atl::kv_model {

/// Of one scheme, over all windows.
struct Rate {
  std::string name;
  double bits = 0;  // Of an element, with what stays exact, scales, tables and heads.
  /// By which part perplexity grows, and half of its 95 % interval over windows.
  double growth = 0;
  double half_interval = 0;
  double encoded_per_s = 0;  // Elements, for each second of a core.
  double decoded_per_s = 0;
  std::vector<double> loss_differences;  // Nats per token, of each window.
};

struct Rates {
  double perplexity = 0;  // With keys and values as they are.
  std::vector<Rate> rates;
};

struct WindowShape {
  int64_t prefix = 2048;  // Tokens whose keys and values are coded,
  int64_t scored = 512;   // and that are predicted behind them. One between is read only.

  int64_t length() const { return prefix + scored + 1; }
};

/// `windows`: each of shape.length() tokens. `done` (may be empty) is called behind each.
Rates measure_rates(const model::Model& model, const std::string& digest,
                    std::span<const std::vector<int64_t>> windows, const WindowShape& shape,
                    std::span<const std::unique_ptr<Scheme>> schemes,
                    const std::function<void()>& done);

}  // namespace atl::kv_model
