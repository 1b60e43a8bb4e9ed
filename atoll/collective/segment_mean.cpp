#include "atoll/collective/segment_mean.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/codec/codec.h"

namespace atl::collective {
void add_scaled(std::span<float> mean, std::span<const float> values, float coefficient) {
  ATOLL_CHECK(mean.size() == values.size());
  float* const to = mean.data();
  const float* const from = values.data();
  for (size_t i = 0; i < mean.size(); ++i) to[i] += coefficient * from[i];
}

void set_scaled(std::span<float> mean, std::span<const float> values, float coefficient) {
  ATOLL_CHECK(mean.size() == values.size());
  float* const to = mean.data();
  const float* const from = values.data();
  for (size_t i = 0; i < mean.size(); ++i) to[i] = 0.0F + coefficient * from[i];
}

std::vector<float> coefficients(std::span<const int64_t> weights) {
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<float> out(weights.size(), 0.0F);
  if (sum == 0) return out;
  for (size_t i = 0; i < weights.size(); ++i) {
    out[i] = static_cast<float>(static_cast<double>(weights[i]) / static_cast<double>(sum));
  }
  return out;
}

SegmentMean::SegmentMean(const MeanRule& rule, std::span<float> mean) : rule_(&rule), mean_(mean) {
  skip_those_left_out();
}

void SegmentMean::skip_those_left_out() {
  const std::vector<float>& all = rule_->coefficients;
  while (std::cmp_less(next_, all.size()) && all[static_cast<size_t>(next_)] == 0) ++next_;
}

std::optional<int32_t> SegmentMean::wanted() const {
  if (rule_ == nullptr || std::cmp_equal(next_, rule_->coefficients.size())) return std::nullopt;
  return next_;
}

void SegmentMean::add(std::span<const std::byte> contribution, std::span<float> decoded) {
  ATOLL_CHECK(wanted().has_value() && decoded.size() == mean_.size());
  rule_->codec->decode(contribution, decoded, rule_->sequence);
  const float coefficient = rule_->coefficients[static_cast<size_t>(next_)];
  if (std::exchange(has_sum_, true)) {
    add_scaled(mean_, decoded, coefficient);
  } else {
    set_scaled(mean_, decoded, coefficient);
  }
  next_ += 1;
  skip_those_left_out();
}

void SegmentMean::encode(std::span<const float> residual, Bytes& out) {
  ATOLL_CHECK(has_sum_ && !wanted(), "the mean is whole");
  for (size_t i = 0; i < residual.size(); ++i) mean_[i] += residual[i];
  rule_->codec->encode(mean_, out, rule_->sequence);
}

void SegmentMean::hold(std::span<const std::byte> encoded, std::span<float> lost) {
  std::ranges::copy(mean_.first(lost.size()), lost.begin());
  rule_->codec->decode(encoded, mean_, rule_->sequence);
  for (size_t i = 0; i < lost.size(); ++i) lost[i] -= mean_[i];
}

}  // namespace atl::collective
