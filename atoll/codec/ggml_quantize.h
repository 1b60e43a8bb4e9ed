#pragma once
// FP32 values as llama.cpp's tensors. Pure, thread-safe.
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/codec/ggml_types.h"

namespace atl::codec {

/// Whole blocks of F32, F16, BF16, Q8_0 or Q4_0, bit for bit those that PyPI `gguf` makes of finite
/// values. Those that are not finite stay so in the first three; a block that has one is lost in
/// the others.
Bytes quantize(GgmlType type, std::span<const float> values);

}  // namespace atl::codec
