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
  /// Names of what is added next begin with `prefix`; it belongs to `layer` and `expert` (-1: to
  /// none).
  void begin(std::string prefix, int64_t layer = -1, int64_t expert = -1) {
    prefix_ = std::move(prefix);
    layer_ = layer;
    expert_ = expert;
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
  /// A vector whose name has no end.
  void vector(Role role, std::string_view name, int64_t size) {
    add(role, std::string(name), {size}, /*inputs_first=*/false);
  }
  /// (inputs, outputs) and (outputs) of each expert: one tensor each.
  void of_experts(Role role, std::string_view name, int64_t num_experts, int64_t inputs,
                  int64_t outputs) {
    add(role, std::string(name), {num_experts, inputs, outputs}, /*inputs_first=*/true);
    specs_.back().num_experts = num_experts;
    add(role, std::string(name) + "_bias", {num_experts, outputs}, /*inputs_first=*/false);
    specs_.back().num_experts = num_experts;
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
                      .inputs_first = inputs_first,
                      .expert = expert_});
    offset_ += size;
  }

  std::vector<ParameterSpec> specs_;
  std::string prefix_;
  int64_t layer_ = -1;
  int64_t expert_ = -1;
  int64_t offset_ = 0;
};

}  // namespace atl::weights
