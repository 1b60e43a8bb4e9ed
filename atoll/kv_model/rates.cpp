#include "atoll/kv_model/rates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "atoll/base/check.h"

namespace atl::kv_model {
namespace {

constexpr float kMostNumber = 2000;  // Beyond it a number is no part of a fit.

int16_t number_of(float value, float step) {
  return kv::component_number(std::clamp(value, -kMostNumber * step, kMostNumber * step), step);
}

double entropy(std::span<const uint32_t> counts, double total) {
  double bits = 0;
  for (const uint32_t count : counts) {
    if (count > 0) bits += count * std::log2(total / count);
  }
  return bits;
}

}  // namespace

void Components::add(std::vector<float> z_RN, size_t num_tokens) {
  ATOLL_CHECK(texts_.empty() || z_RN.size() / num_tokens == num_components());
  texts_.push_back({std::move(z_RN), num_tokens});
}

size_t Components::num_components() const {
  return texts_.front().z_RN.size() / texts_.front().num_tokens;
}

double Components::num_values() const {
  double count = 0;
  for (const OfText& text : texts_) count += static_cast<double>(text.z_RN.size());
  return count;
}

std::vector<int16_t> Components::numbers(size_t component, float step) const {
  std::vector<int16_t> numbers;
  for (const OfText& text : texts_) {
    const auto row = std::span(text.z_RN).subspan(component * text.num_tokens, text.num_tokens);
    for (const float value : row) numbers.push_back(number_of(value, step));
  }
  return numbers;
}

double Components::bits(float step) const {
  constexpr int kWindow = 500;  // Numbers beyond it are counted as the last one.
  double bits = 0;
  std::array<uint32_t, 2 * kWindow + 1> counts{};
  for (size_t r = 0; r < num_components(); ++r) {
    counts.fill(0);
    double total = 0;
    for (const int16_t number : numbers(r, step)) {
      ++counts[static_cast<size_t>(std::clamp<int>(number, -kWindow, kWindow) + kWindow)];
      total += 1;
    }
    bits += entropy(counts, total);
  }
  return bits;
}

uint32_t Components::num_alive(float step, double share) const {
  for (size_t r = num_components(); r-- > 0;) {
    const std::vector<int16_t> all = numbers(r, step);
    const auto zeros = std::ranges::count(all, int16_t{0});
    if (static_cast<double>(std::ssize(all) - zeros) >= share * static_cast<double>(all.size())) {
      return static_cast<uint32_t>(r + 1);
    }
  }
  return 0;
}

kv::ComponentStep Components::fitted_step(float step, size_t num_components) const {
  std::array<double, 2> sums{};
  std::array<double, 2> counts{};
  for (const OfText& text : texts_) {
    for (const float value : std::span(text.z_RN).first(num_components * text.num_tokens)) {
      const int size = std::abs(number_of(value, step));
      if (size != 1 && size != 2) continue;
      sums[static_cast<size_t>(size - 1)] += std::abs(value) / step;
      counts[static_cast<size_t>(size - 1)] += 1;
    }
  }
  kv::ComponentStep fitted{.step = step};
  for (size_t i = 0; i < 2; ++i) {
    // No larger than themselves: readers hold to it that sums of a token stay below a bound.
    const auto size = static_cast<double>(i + 1);
    if (counts[i] > 0) fitted.means[i] = static_cast<float>(std::min(size, sums[i] / counts[i]));
  }
  return fitted;
}

double step_for(std::span<const Components> groups, double bits) {
  double count = 0;
  for (const Components& group : groups) count += group.num_values();
  const auto bits_with = [&](double step) {
    double sum = 0;
    for (const Components& group : groups) sum += group.bits(static_cast<float>(step));
    return sum / count;
  };
  return step_where(bits_with, bits, 14);
}

double step_where(const std::function<double(double)>& bits_with, double bits, int halvings) {
  double low = 1;
  while (bits_with(low) < bits && low > 1e-12) low /= 8;
  double high = low;
  while (bits_with(high) > bits && high < 1e12) high *= 8;
  for (int i = 0; i < halvings; ++i) {
    const double middle = std::sqrt(low * high);
    (bits_with(middle) > bits ? low : high) = middle;
  }
  return high;
}

double typical_scale(std::span<const uint16_t> plane_CN, size_t num_channels) {
  const size_t num_tokens = plane_CN.size() / num_channels;
  double squares = 0;
  for (size_t t = 0; t < num_tokens; ++t) {
    uint16_t most = 0;
    for (size_t c = 0; c < num_channels; ++c) {
      most = std::max<uint16_t>(most, plane_CN[c * num_tokens + t] & 0x7FFF);
    }
    squares += std::pow(double{std::bit_cast<float>(uint32_t{most} << 16)}, 2);
  }
  return std::sqrt(squares / static_cast<double>(num_tokens));
}

}  // namespace atl::kv_model
