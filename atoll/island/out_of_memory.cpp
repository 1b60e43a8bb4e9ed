#include "atoll/island/out_of_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <string>

#include "atoll/base/error.h"
#include "atoll/base/machine_memory.h"

namespace atl::island {
namespace {

double memory_of(c10::Device device) {
  if (device.is_cpu()) return usable_memory_bytes();
  auto* const allocator = at::getDeviceAllocator(device.type());
  return static_cast<double>(allocator->getMemoryInfo(device.index()).second);
}

/// Allocators of devices throw errors of a type of their own, the CPU's says it in words.
bool is_out_of_memory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  return std::string(error.what_without_backtrace()).find("can't allocate memory") !=
         std::string::npos;
}

}  // namespace

plan::TrainingFit training_fit(const run::RunConfig& config, c10::Device device,
                               const run::ProcessPlace& place) {
  const int64_t sharing = device.is_cpu() ? place.local_size : 1;
  return {.model = config.model,
          .train = config.train,
          .rows = config.train.batch_rows / config.swarm.num_replicas(),
          .num_processes = place.size,
          .memory_bytes = memory_of(device) / static_cast<double>(sharing)};
}

void explain(const c10::Error& error, const run::RunConfig& config, c10::Device device,
             const run::ProcessPlace& place) {
  if (!is_out_of_memory(error)) throw;
  if (config.adapter.is_on()) {
    throw InputError(
        fmt::format("{} is out of memory; fewer rows at a time need less: "
                    "train.micro_batch_rows, of {}",
                    device.str(), training_fit(config, device, place).rows));
  }
  throw InputError(fmt::format("{} is out of memory: {}", device.str(),
                               plan::memory_advice(training_fit(config, device, place),
                                                   /*was_tried=*/true)));
}

}  // namespace atl::island
