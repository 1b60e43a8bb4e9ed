#pragma once
// Experts in MXFP4 as gpt-oss's files hold them: in place of a tensor NAME (experts, inputs,
// outputs) NAME_blocks (experts, outputs, inputs / 32, 16), two values a byte, and NAME_scales
// (experts, outputs, inputs / 32), both U8.
#include <map>
#include <string>
#include <string_view>

#include "atoll/base/bytes.h"
#include "atoll/weights/config.h"
#include "atoll/weights/safetensors.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

class PackedExperts {
 public:
  /// Whether the tensor is one of the two; they are kept by the name that they stand for. The views
  /// outlive it. Throws InputError where it was there before.
  bool take(const TensorView& tensor, const std::string& folder);

  struct Pair {
    const TensorView* blocks = nullptr;
    const TensorView* scales = nullptr;
  };
  const std::map<std::string, Pair>& pairs() const { return pairs_; }

 private:
  std::map<std::string, Pair> pairs_;
};

/// As blocks of GgmlType::kMXFP4, in `bytes`, a row for each output. Throws InputError naming what
/// is missing or of another shape.
StoredTensor unpacked(const PackedExperts::Pair& pair, const ParameterSpec& spec, Bytes& bytes,
                      const std::string& folder);

}  // namespace atl::weights
