#include "atoll/cli_torch/bench_device.h"

#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "atoll/base/error.h"
#include "atoll/base/machine_memory.h"
#include "atoll/base/progress.h"
#include "atoll/model/device.h"

namespace atl::cli {

at::Device numbered_device(const std::string& text, const std::string& option) {
  const at::Device device = model::usable_device(text, option);
  return at::empty({1}, at::TensorOptions().device(device)).device();
}

double memory_bytes(at::Device device) {
  if (device.is_cpu()) return usable_memory_bytes();
  return static_cast<double>(
      at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second);
}

double peak_memory_bytes(at::Device device) {
  if (device.is_cpu()) return atl::peak_memory_bytes();
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(stats.allocated_bytes[kAll].peak);
}

void finish_work(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.index());
}

void require_room(double num_parameters, int num_moments, at::Device device) {
  const double needed = num_parameters * sizeof(float) * (2 + num_moments);
  const double there = memory_bytes(device);
  if (needed <= there) return;
  throw InputError(fmt::format(
      "a training step of {} parameters needs {} for them, their gradients and the optimiser "
      "alone, and {} has {}; lower --model.num_layers or --model.hidden_size",
      format_count(num_parameters), format_bytes(needed),
      device.is_cpu() ? "this machine" : device.str(), format_bytes(there)));
}

}  // namespace atl::cli
