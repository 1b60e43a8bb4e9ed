#include "atoll/kv/group_transform.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/base/error.h"
#include "atoll/codec/float_bits.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {
namespace {

constexpr int32_t kMostInput = 32'767;    // Of y, in units.
constexpr int32_t kMostWeights = 65'535;  // The sum of a row of `forward`: times 2^15 is 2^31.
constexpr int32_t kMostInverse = 8'191;   // Of `inverse`, in units,
// and so many are all numbers of a token together, in fractions: products are below 2^31.
constexpr int32_t kMostFractions = 262'000;
constexpr int kFractions = 16;  // Of a step: numbers 1 and 2 are read back as their means.
constexpr size_t kTokens = TokenBlock::kTokens;

/// y in units, rounded; `worst` gets at least the size of each, and infinity for what is no number.
ATOLL_CLONES void take(const float* y, float inverse_unit, size_t count, int16_t* to,
                       float* worst) {
  for (size_t t = 0; t < count; ++t) {
    const float units = y[t] * inverse_unit;
    const float size = std::abs(units);
    const bool is_in = size <= kMostInput;
    worst[t] = is_in ? worst[t] : HUGE_VALF;
    to[t] = static_cast<int16_t>(codec::round_to_int(is_in ? units : 0));
  }
}

/// Rounds sums to numbers of steps; |z| / step is rounded up from kRoundedUpFrom on.
ATOLL_CLONES void round_sums(const int32_t* sums, float steps_per_unit, size_t count, int16_t* to,
                             int32_t* totals, int32_t* largest) {
  constexpr float kMost = GroupTransform::kMostNumber;
  for (size_t t = 0; t < count; ++t) {
    const float steps = static_cast<float>(sums[t]) * steps_per_unit;
    const float size = std::min(std::abs(steps), kMost);
    const auto number = static_cast<int32_t>(size + (1 - kRoundedUpFrom));
    totals[t] += number;
    largest[t] = std::max(largest[t], number);
    to[t] = static_cast<int16_t>(steps < 0 ? -number : number);
  }
}

ATOLL_CLONES void scale(const int32_t* sums, float unit, size_t count, float* to) {
  for (size_t t = 0; t < count; ++t) to[t] = static_cast<float>(sums[t]) * unit;
}

/// Numbers become fractions of a step.
ATOLL_CLONES void widen(int16_t* numbers, int16_t one, int16_t two, size_t count) {
  constexpr int16_t kMost = GroupTransform::kMostNumber;
  for (size_t i = 0; i < count; ++i) {
    // What is beyond the largest one no encoder writes.
    const int16_t number = std::clamp<int16_t>(numbers[i], -kMost, kMost);
    const auto size = static_cast<int16_t>(number < 0 ? -number : number);
    auto value = static_cast<int16_t>(size * kFractions);
    value = size == 1 ? one : value;
    value = size == 2 ? two : value;
    numbers[i] = static_cast<int16_t>(number < 0 ? -value : value);
  }
}

int16_t fractions_of(float mean) { return static_cast<int16_t>(std::lround(mean * kFractions)); }

/// A row in units so large that no number is beyond `most`, and their sum not beyond `most_sum`.
float unit_of(std::span<const float> row, double most, double most_sum) {
  double largest = 0;
  double sum = 0;
  for (const float value : row) {
    largest = std::max(largest, std::abs(double{value}));
    sum += std::abs(double{value});
  }
  // Roundings can add half a unit each.
  const double left = most_sum - 0.5 * static_cast<double>(row.size());
  const double unit = std::max(largest / most, sum / left);
  return unit > 0 ? static_cast<float>(unit * (1 + 0x1p-20)) : 1;
}

struct InUnits {
  std::vector<int16_t> numbers;
  std::vector<float> units;
};

InUnits in_units(std::span<const float> rows, size_t num_rows, double most, double most_sum) {
  InUnits made;
  const size_t width = rows.size() / num_rows;
  for (size_t i = 0; i < num_rows; ++i) {
    const auto row = rows.subspan(i * width, width);
    made.units.push_back(unit_of(row, most, most_sum));
    for (const float value : row) {
      made.numbers.push_back(static_cast<int16_t>(std::lround(value / made.units.back())));
    }
  }
  return made;
}

void put_matrix(ByteWriter& writer, const WholeMatrix& matrix) {
  std::vector<int16_t> values;
  values.reserve(matrix.num_outputs() * matrix.num_inputs());
  for (size_t m = 0; m < matrix.num_outputs(); ++m) {
    for (size_t k = 0; k < matrix.num_inputs(); ++k) values.push_back(matrix.at(m, k));
  }
  writer.put_bytes(std::as_bytes(std::span(values)));
}

WholeMatrix get_matrix(ByteReader& in, size_t num_outputs, size_t num_inputs, int32_t most,
                       int64_t most_sum) {
  std::vector<int16_t> values(num_outputs * num_inputs);
  const auto bytes = in.get_bytes(values.size() * sizeof(int16_t));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(values)).begin());
  for (size_t m = 0; m < num_outputs; ++m) {
    int64_t sum = 0;
    for (const int16_t value : std::span(values).subspan(m * num_inputs, num_inputs)) {
      if (std::abs(int32_t{value}) > most) throw InputError("a transform has too large numbers");
      sum += std::abs(int32_t{value});
    }
    if (sum > most_sum) throw InputError("a transform has rows of too large sums");
  }
  return {values, num_outputs};
}

}  // namespace

void put_floats(ByteWriter& writer, std::span<const float> values) {
  writer.put_bytes(std::as_bytes(values));
}

std::vector<float> get_floats(ByteReader& in, size_t count) {
  std::vector<float> values(count);
  const auto bytes = in.get_bytes(count * sizeof(float));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(values)).begin());
  for (const float value : values) {
    if (!std::isfinite(value)) throw InputError("it has numbers that are not finite");
  }
  return values;
}

GroupTransform::GroupTransform(std::span<const float> forward_RM, std::span<const float> inverse_MR,
                               std::span<const float> largest_M) {
  const size_t num_channels = largest_M.size();
  const size_t num_components = forward_RM.size() / num_channels;
  ATOLL_CHECK(num_components > 0 && forward_RM.size() == num_components * num_channels);
  ATOLL_CHECK(inverse_MR.size() == forward_RM.size());
  for (const float largest : largest_M) {
    input_units_M_.push_back(largest > 0 ? largest / kMostInput : 1);
  }
  std::vector<float> of_units_RM;  // What a unit of y becomes.
  for (size_t i = 0; i < forward_RM.size(); ++i) {
    of_units_RM.push_back(forward_RM[i] * input_units_M_[i % num_channels]);
  }
  InUnits forward = in_units(of_units_RM, num_components, kMostInput, kMostWeights);
  forward_ = WholeMatrix(forward.numbers, num_components);
  forward_units_R_ = std::move(forward.units);
  InUnits inverse = in_units(inverse_MR, num_channels, kMostInverse, 1e18);
  inverse_ = WholeMatrix(inverse.numbers, num_channels);
  for (const float unit : inverse.units) inverse_units_M_.push_back(unit / kFractions);
}

std::vector<int16_t> GroupTransform::inputs(std::span<const float> y_MT,
                                            std::vector<uint8_t>& refused_T) const {
  const size_t num_tokens = y_MT.size() / num_channels();
  std::vector<int16_t> x_MT(y_MT.size());
  std::vector<float> worst_T(num_tokens);
  for (size_t m = 0; m < num_channels(); ++m) {
    take(y_MT.data() + m * num_tokens, 1 / input_units_M_[m], num_tokens,
         x_MT.data() + m * num_tokens, worst_T.data());
  }
  for (size_t t = 0; t < num_tokens; ++t) {
    if (worst_T[t] > kMostInput) refused_T[t] = 1;
  }
  return x_MT;
}

template <typename Take>
void GroupTransform::multiply_blocks(std::span<const float> y_MT, size_t num_components,
                                     std::vector<uint8_t>& refused_T, const Take& take) const {
  const size_t num_tokens = y_MT.size() / num_channels();
  const std::vector<int16_t> x_MT = inputs(y_MT, refused_T);
  TokenBlock block(num_channels());
  std::vector<int32_t> sums_RT;
  for (size_t first = 0; first < num_tokens; first += kTokens) {
    const size_t count = std::min(kTokens, num_tokens - first);
    block.take(x_MT, first, count);
    forward_.multiply(block, num_components, sums_RT);
    take(sums_RT.data(), first, count);
  }
}

std::vector<float> GroupTransform::components(std::span<const float> y_MT, size_t num_components,
                                              std::vector<uint8_t>& refused_T) const {
  const size_t num_tokens = y_MT.size() / num_channels();
  std::vector<float> z_RT(num_components * num_tokens);
  const auto take = [&](const int32_t* sums_RT, size_t first, size_t count) {
    for (size_t r = 0; r < num_components; ++r) {
      scale(sums_RT + r * kTokens, forward_units_R_[r], count,
            z_RT.data() + r * num_tokens + first);
    }
  };
  multiply_blocks(y_MT, num_components, refused_T, take);
  return z_RT;
}

void GroupTransform::encode(std::span<const float> y_MT, const GroupLevel& level, Bytes& out,
                            std::vector<uint8_t>& refused_T) const {
  const size_t num_tokens = y_MT.size() / num_channels();
  const size_t num_components = level.num_components;
  ATOLL_CHECK(num_components <= this->num_components());
  ATOLL_CHECK(level.tables_R.size() == num_components && refused_T.size() == num_tokens);
  if (num_components == 0) return;
  std::vector<int16_t> numbers_RT(num_components * num_tokens);
  const auto take = [&](const int32_t* sums_RT, size_t first, size_t count) {
    std::array<int32_t, kTokens> totals{};
    std::array<int32_t, kTokens> largest{};
    for (size_t r = 0; r < num_components; ++r) {
      round_sums(sums_RT + r * kTokens, forward_units_R_[r] / level.step.step, count,
                 numbers_RT.data() + r * num_tokens + first, totals.data(), largest.data());
    }
    for (size_t t = 0; t < count; ++t) {
      if (totals[t] > kMostFractions / kFractions || largest[t] >= kMostNumber) {
        refused_T[first + t] = 1;
      }
    }
  };
  multiply_blocks(y_MT, num_components, refused_T, take);
  encode_values(numbers_RT, level.tables_R, out);
}

void GroupTransform::decode(ByteReader& in, const GroupLevel& level, std::span<float> y_MT) const {
  const size_t num_tokens = y_MT.size() / num_channels();
  const size_t num_components = level.num_components;
  ATOLL_CHECK(num_components <= this->num_components());
  if (num_components == 0) {
    std::ranges::fill(y_MT, 0.0F);
    return;
  }
  std::vector<int16_t> numbers_RT(num_components * num_tokens);
  decode_values(in, level.tables_R, numbers_RT);
  widen(numbers_RT.data(), fractions_of(level.step.means[0]), fractions_of(level.step.means[1]),
        numbers_RT.size());
  TokenBlock block(num_components);
  std::vector<int32_t> sums_MT;
  for (size_t first = 0; first < num_tokens; first += kTokens) {
    const size_t count = std::min(kTokens, num_tokens - first);
    block.take(numbers_RT, first, count);
    inverse_.multiply(block, num_channels(), sums_MT);
    for (size_t m = 0; m < num_channels(); ++m) {
      scale(sums_MT.data() + m * kTokens, inverse_units_M_[m] * level.step.step, count,
            y_MT.data() + m * num_tokens + first);
    }
  }
}

void GroupTransform::write(ByteWriter& writer) const {
  writer.put(static_cast<uint32_t>(num_components()));
  put_floats(writer, input_units_M_);
  put_floats(writer, forward_units_R_);
  put_floats(writer, inverse_units_M_);
  put_matrix(writer, forward_);
  put_matrix(writer, inverse_);
}

GroupTransform GroupTransform::read(ByteReader& in, size_t num_channels) {
  GroupTransform made;
  const size_t num_components = in.get<uint32_t>();
  if (num_components == 0 || num_components > num_channels) {
    throw InputError("a transform has an impossible number of components");
  }
  made.input_units_M_ = get_floats(in, num_channels);
  if (std::ranges::any_of(made.input_units_M_, [](float unit) { return unit <= 0; })) {
    throw InputError("a transform has units that are none");
  }
  made.forward_units_R_ = get_floats(in, num_components);
  made.inverse_units_M_ = get_floats(in, num_channels);
  made.forward_ = get_matrix(in, num_components, num_channels, kMostInput, kMostWeights);
  made.inverse_ = get_matrix(in, num_channels, num_components, kMostInverse, INT64_MAX);
  return made;
}

}  // namespace atl::kv
