#pragma once
// How a family lists its tensors: in the order of the flat buffer, one behind the other.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::weights {

class TensorList {
 public:
  /// Names of what is added next begin with `prefix`; it belongs to `layer` (-1: to none).
  void begin(std::string prefix, int64_t layer = -1) {
    prefix_ = std::move(prefix);
    layer_ = layer;
  }
  /// A matrix (outputs, inputs), or a vector.
  void weight(Role role, std::string_view name, std::vector<int64_t> shape) {
    add(role, std::string(name) + ".weight", std::move(shape), /*inputs_first=*/false);
  }
  /// A matrix that files hold as (inputs, outputs).
  void inputs_first_weight(Role role, std::string_view name, std::vector<int64_t> shape) {
    add(role, std::string(name) + ".weight", std::move(shape), /*inputs_first=*/true);
  }
  void bias(Role role, std::string_view name, int64_t size) {
    add(role, std::string(name) + ".bias", {size}, /*inputs_first=*/false);
  }
  std::vector<ParameterSpec> take() { return std::move(specs_); }

 private:
  void add(Role role, const std::string& name, std::vector<int64_t> shape, bool inputs_first) {
    int64_t size = 1;
    for (const int64_t length : shape) size *= length;
    specs_.push_back({.name = prefix_ + name,
                      .shape = std::move(shape),
                      .offset = offset_,
                      .size = size,
                      .layer = layer_,
                      .role = role,
                      .inputs_first = inputs_first});
    offset_ += size;
  }

  std::vector<ParameterSpec> specs_;
  std::string prefix_;
  int64_t layer_ = -1;
  int64_t offset_ = 0;
};

}  // namespace atl::weights
