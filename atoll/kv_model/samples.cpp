#include "atoll/kv_model/samples.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/kv/lossy_coder.h"
#include "atoll/kv_model/planes.h"

namespace atl::kv_model {
namespace {

// Of every stretch so many tokens are kept, which follow on each other as groups of ten do.
constexpr uint32_t kStretch = 160;
constexpr uint32_t kKeptOfStretch = 40;

kv::TurnTable const* table_of(const kv::Turns& turns, size_t plane) {
  return plane % 2 == 0 ? turns.of(plane / 2) : nullptr;
}

}  // namespace

std::vector<size_t> planes_in(const kv::Group& group) {
  std::vector<size_t> planes;
  for (int32_t l = group.first_layer; l < group.end_layer; ++l) planes.push_back(group.plane_of(l));
  return planes;
}

Samples::Samples(const weights::ModelConfig& config, std::span<const kv::Group> groups,
                 int64_t length)
    : num_channels_(static_cast<size_t>(config.num_kv_heads * config.head_size())),
      groups_(groups),
      turns_(turns_of(config, 0, length)) {
  const kv::ExactEnds ends;
  ATOLL_CHECK(length >= ends.first + ends.last + kKeptOfStretch);
  for (uint32_t t = 0; t + ends.first + ends.last < length; ++t) {
    if (t % kStretch < kKeptOfStretch) kept_tokens_.push_back(ends.first + t);
  }
  kept_turns_ = turns_.of_tokens(kept_tokens_);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  for (const kv::Group& group : groups) {
    const auto size = static_cast<int64_t>(planes_in(group).size() * num_channels_);
    sums_M_.push_back(at::zeros({size}, options));
    products_MM_.push_back(at::zeros({size, size}, options));
    largest_M_.push_back(at::zeros({size}, at::TensorOptions().dtype(at::kFloat)));
  }
}

at::Tensor Samples::straight_MT(const kv::Group& group, std::span<const uint16_t> kv_PCT) const {
  const std::vector<size_t> planes = planes_in(group);
  const size_t size = num_channels_ * turns_.num_tokens;
  const at::Tensor y_MT = at::empty({static_cast<int64_t>(planes.size() * num_channels_),
                                     static_cast<int64_t>(turns_.num_tokens)},
                                    at::TensorOptions().dtype(at::kFloat));
  float* to = y_MT.mutable_data_ptr<float>();
  const std::vector<float> none(num_channels_);
  for (const size_t plane : planes) {
    kv::straighten(kv_PCT.subspan(plane * size, size), turns_, table_of(turns_, plane), none,
                   std::span(to, size));
    to += size;
  }
  return y_MT;
}

void Samples::add(std::span<const uint16_t> kv_PCT) {
  const kv::ExactEnds ends;
  const int64_t count = static_cast<int64_t>(turns_.num_tokens) - ends.first - ends.last;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const at::Tensor y_MT = straight_MT(groups_[i], kv_PCT).narrow(1, ends.first, count);
    sums_M_[i] += y_MT.sum(1).to(at::kDouble);
    products_MM_[i] += y_MT.matmul(y_MT.t()).to(at::kDouble);
    largest_M_[i] = at::maximum(largest_M_[i], y_MT.abs().amax(1));
  }
  num_tokens_ += static_cast<double>(count);
  std::vector<uint16_t> kept;
  for (size_t row = 0; row < kv_PCT.size(); row += turns_.num_tokens) {
    for (const uint32_t token : kept_tokens_) kept.push_back(kv_PCT[row + token]);
  }
  kept_.push_back(std::move(kept));
}

std::span<const uint16_t> Samples::kept(size_t text, size_t plane) const {
  const size_t size = num_channels_ * num_kept();
  return std::span(kept_[text]).subspan(plane * size, size);
}

std::vector<float> Samples::straight(const kv::Group& group, size_t text,
                                     std::span<const float> means_PC) const {
  const std::vector<size_t> planes = planes_in(group);
  const size_t size = num_channels_ * num_kept();
  std::vector<float> y_MN(planes.size() * size);
  for (size_t i = 0; i < planes.size(); ++i) {
    kv::straighten(kept(text, planes[i]), kept_turns_, table_of(kept_turns_, planes[i]),
                   means_PC.subspan(planes[i] * num_channels_, num_channels_),
                   std::span(y_MN).subspan(i * size, size));
  }
  return y_MN;
}

std::vector<float> Samples::means_PC() const {
  std::vector<float> means(kept_.front().size() / num_kept());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const at::Tensor mean_M = (sums_M_[i] / num_tokens_).to(at::kFloat).contiguous();
    const float* from = mean_M.const_data_ptr<float>();
    for (const size_t plane : planes_in(groups_[i])) {
      std::copy_n(from, num_channels_,
                  means.begin() + static_cast<std::ptrdiff_t>(plane * num_channels_));
      from += num_channels_;
    }
  }
  return means;
}

at::Tensor Samples::covariance(size_t group) const {
  const at::Tensor mean_M = sums_M_[group] / num_tokens_;
  return products_MM_[group] / num_tokens_ - at::outer(mean_M, mean_M);
}

std::vector<float> Samples::largest(const kv::Group& group) const {
  const auto index = static_cast<size_t>(&group - groups_.data());
  const at::Tensor mean_M = (sums_M_[index] / num_tokens_).to(at::kFloat);
  const at::Tensor all_M = (largest_M_[index] + mean_M.abs()).contiguous();
  const float* const data = all_M.const_data_ptr<float>();
  return {data, data + all_M.numel()};
}

}  // namespace atl::kv_model
