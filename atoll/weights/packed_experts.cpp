#include "atoll/weights/packed_experts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr size_t kHalf = 16;  // Bytes of a block, and half of its values.

const TensorView& one_of(const TensorView* tensor, const std::vector<int64_t>& shape,
                         const ParameterSpec& spec, std::string_view end,
                         const std::string& folder) {
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("'{}': tensor '{}{}' {}", folder, spec.name, end, what));
  };
  if (tensor == nullptr) fail("is missing");
  if (tensor->type != DType::kU8 || tensor->shape != shape) {
    fail(fmt::format("is {} ({}), and config.json asks for U8 ({})", name_of(tensor->type),
                     fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
  }
  return *tensor;
}

/// There neighbours share a byte; in GGUF's blocks values of the first half have the lower four
/// bits.
void write_block(const std::byte* pairs, std::byte scale, std::byte* block) {
  const auto level = [&](size_t i) {
    return i % 2 == 0 ? pairs[i / 2] & std::byte{15} : pairs[i / 2] >> 4;
  };
  block[0] = scale;
  for (size_t i = 0; i < kHalf; ++i) block[1 + i] = level(i) | level(i + kHalf) << 4;
}

}  // namespace

bool PackedExperts::take(const TensorView& tensor, const std::string& folder) {
  for (const std::string_view end : {kBlocks, kScales}) {
    if (!tensor.name.ends_with(end)) continue;
    Pair& pair = pairs_[tensor.name.substr(0, tensor.name.size() - end.size())];
    const TensorView*& place = end == kBlocks ? pair.blocks : pair.scales;
    if (place != nullptr) {
      throw InputError(fmt::format("'{}': tensor '{}' appears twice", folder, tensor.name));
    }
    place = &tensor;
    return true;
  }
  return false;
}

StoredTensor unpacked(const PackedExperts::Pair& pair, const ParameterSpec& spec, Bytes& bytes,
                      const std::string& folder) {
  constexpr auto kValues = static_cast<int64_t>(2 * kHalf);
  if (spec.shape.size() != 3 || spec.shape[1] % kValues != 0) {
    throw InputError(
        fmt::format("'{}': tensor '{}' cannot be in MXFP4: it is no matrix for each "
                    "expert whose inputs are a multiple of {}",
                    folder, spec.name, kValues));
  }
  std::vector<int64_t> shape = {spec.shape[0], spec.shape[2], spec.shape[1] / kValues};
  const TensorView& scales = one_of(pair.scales, shape, spec, kScales, folder);
  shape.push_back(static_cast<int64_t>(kHalf));
  const TensorView& blocks = one_of(pair.blocks, shape, spec, kBlocks, folder);
  const size_t count = scales.bytes.size();
  bytes.resize(count * (kHalf + 1));
  for (size_t i = 0; i < count; ++i) {
    write_block(blocks.bytes.data() + i * kHalf, scales.bytes[i], bytes.data() + i * (kHalf + 1));
  }
  return {.type = codec::GgmlType::kMXFP4,
          .bytes = bytes,
          .num_rows = spec.shape[0] * spec.shape[2],
          .width = spec.shape[1]};
}

}  // namespace atl::weights
