#include "atoll/island/out_of_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <string>

#include "atoll/base/error.h"
#include "atoll/base/machine_memory.h"
#include "atoll/model/torch_error.h"

namespace atl::island {
namespace {

double memory_of(c10::Device device) {
  if (device.is_cpu()) return usable_memory_bytes();
  auto* const allocator = at::getDeviceAllocator(device.type());
  return static_cast<double>(allocator->getMemoryInfo(device.index()).second);
}

}  // namespace

/// Allocators of devices throw errors of a type of their own, the CPU's says it in words.
bool is_out_of_memory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  return std::string(error.what_without_backtrace()).find("can't allocate memory") !=
         std::string::npos;
}

plan::TrainingFit training_fit(const run::RunConfig& config, c10::Device device,
                               const run::ProcessPlace& place) {
  plan::TrainingFit fit = plan::fit_of_leader(config.model, config.train, config.sync,
                                              config.swarm.num_replicas(), place.size);
  fit.memory_bytes = memory_of(device);
  if (device.is_cpu()) fit.local_processes = place.local_size;
  if (!place.leads()) fit.kept = {};
  return fit;
}

std::string outside_of_passes(const std::string& what) {
  return what +
         "; choose a smaller model (model.hidden_size, model.num_layers, ...), or share it among "
         "processes on several machines (train.shard)";
}

std::string reason_of(const c10::Error& error) {
  const std::string reason = "LibTorch: " + model::first_line(error);
  return is_out_of_memory(error) ? outside_of_passes(reason) : reason;
}

void throw_with_advice(const run::RunConfig& config, c10::Device device,
                       const run::ProcessPlace& place) {
  const plan::TrainingFit fit = training_fit(config, device, place);
  const std::string advice =
      config.adapter.is_on()
          ? fmt::format("fewer rows at a time need less: train.micro_batch_rows, of {}", fit.rows)
          : plan::memory_advice(fit, /*was_tried=*/true);
  throw InputError(fmt::format("{} is out of memory: {}", device.str(), advice));
}

}  // namespace atl::island
