#pragma once
// A device as benchmarks see it: its memory, and when it has done what it was told.
#include <c10/core/Device.h>

#include <string>

namespace atl::cli {

/// model::usable_device() with its number: "cuda" is "cuda:0", or what the user made the current
/// one. Throws UsageError that names `option`.
at::Device numbered_device(const std::string& text, const std::string& option);

/// Of the device, or of the machine where that computes; bytes.
double memory_bytes(at::Device device);

/// The most that this process has held there at once: what LibTorch's allocator gave out, or on a
/// CPU all of the process.
double peak_memory_bytes(at::Device device);

/// Waits until the device has done all that it was given. On a CPU it has.
void finish_work(at::Device device);

/// Throws InputError that says what would help when a training model's parameters, gradients and
/// moments alone are more than the device holds.
void require_room(double num_parameters, int num_moments, at::Device device);

}  // namespace atl::cli
