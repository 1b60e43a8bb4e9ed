#include "atoll/kv/component_coder.h"

#include <cmath>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::kv {
namespace {

constexpr float kMostSteps = 32'000;

}  // namespace

int16_t component_number(float value, float step) {
  const float steps = std::abs(value) / step;
  // A comparison that is false of what is no number, too.
  if (!(steps < kMostSteps)) throw InputError("keys or values are not finite, or far too large");
  const auto number = static_cast<int16_t>(steps + (1 - kRoundedUpFrom));
  return value < 0 ? static_cast<int16_t>(-number) : number;
}

void encode_components(std::span<const float> z_TR, const ComponentStep& step,
                       std::span<const ValueTable> tables_R, Bytes& out) {
  const size_t num_components = tables_R.size();
  ATOLL_CHECK(num_components > 0 && z_TR.size() % num_components == 0);
  const size_t num_tokens = z_TR.size() / num_components;
  std::vector<int16_t> numbers_RT(z_TR.size());
  for (size_t t = 0; t < num_tokens; ++t) {
    for (size_t r = 0; r < num_components; ++r) {
      numbers_RT[r * num_tokens + t] = component_number(z_TR[t * num_components + r], step.step);
    }
  }
  encode_values(numbers_RT, tables_R, out);
}

void decode_components(ByteReader& in, const ComponentStep& step,
                       std::span<const ValueTable> tables_R, std::span<float> z_TR) {
  const size_t num_components = tables_R.size();
  ATOLL_CHECK(num_components > 0 && z_TR.size() % num_components == 0);
  const size_t num_tokens = z_TR.size() / num_components;
  std::vector<int16_t> numbers_RT(z_TR.size());
  decode_values(in, tables_R, numbers_RT);
  const float one = step.means[0] * step.step;
  const float two = step.means[1] * step.step;
  const std::array<float, 5> near = {-two, -one, 0, one, two};
  for (size_t r = 0; r < num_components; ++r) {
    for (size_t t = 0; t < num_tokens; ++t) {
      const int number = numbers_RT[r * num_tokens + t];
      z_TR[t * num_components + r] = number >= -2 && number <= 2
                                         ? near[static_cast<size_t>(number + 2)]
                                         : static_cast<float>(number) * step.step;
    }
  }
}

}  // namespace atl::kv
