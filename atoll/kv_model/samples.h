#pragma once
// What is kept of many texts' keys and values to fit a profile to: moments of all tokens, and some
// tokens themselves.
//
// Shapes: P = planes, C = channels, T = a text's tokens, N = those of them that are kept, M = as in
// kv/group_transform.h.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/kv/profile.h"
#include "atoll/kv/turns.h"
#include "atoll/model/model.h"

namespace atl::kv_model {

/// The planes of a group, as indices among the model's.
std::vector<size_t> planes_in(const kv::Group& group);

class Samples {
 public:
  /// Texts will have so many tokens.
  Samples(const weights::ModelConfig& config, std::span<const kv::Group> groups, int64_t length);

  void add(std::span<const uint16_t> kv_PCT);

  size_t num_texts() const { return kept_.size(); }
  size_t num_kept() const { return kept_turns_.num_tokens; }  // Of each text.
  size_t num_channels() const { return num_channels_; }
  const kv::Turns& kept_turns() const { return kept_turns_; }
  /// (C, N) of a text: the bits of bfloat16s.
  std::span<const uint16_t> kept(size_t text, size_t plane) const;
  /// (M, N), turned back, less the means.
  std::vector<float> straight(const kv::Group& group, size_t text,
                              std::span<const float> means_PC) const;

  /// Of keys turned back and of values, over all tokens but the first and last ones.
  std::vector<float> means_PC() const;
  /// (M, M) in double, about the means.
  at::Tensor covariance(size_t group) const;
  /// (M): no value less its mean was larger.
  std::vector<float> largest(const kv::Group& group) const;

 private:
  at::Tensor straight_MT(const kv::Group& group, std::span<const uint16_t> kv_PCT) const;

  size_t num_channels_;
  std::span<const kv::Group> groups_;
  kv::Turns turns_, kept_turns_;
  std::vector<uint32_t> kept_tokens_;
  std::vector<std::vector<uint16_t>> kept_;                   // (P, C, N).
  std::vector<at::Tensor> sums_M_, products_MM_, largest_M_;  // By group.
  double num_tokens_ = 0;
};

}  // namespace atl::kv_model
