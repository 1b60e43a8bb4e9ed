#pragma once
// Tensors that lie on a disk (base/spilled_array.h): for whole moments or parameters where each
// process of an island has memory for its part alone.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

namespace atl::model {

/// (size,) zeros, FP32, in a file of `folder` that has no name and goes with the tensor. Throws
/// InputError naming the folder where the disk has no room.
at::Tensor spilled_tensor(const std::filesystem::path& folder, int64_t size);

/// Whether it is one, or a slice of one.
bool is_spilled(const at::Tensor& tensor);

/// If it is spilled, and contiguous: its pages leave this process's memory; the values stay as they
/// are. Else nothing happens.
void let_rest(const at::Tensor& tensor);

}  // namespace atl::model
