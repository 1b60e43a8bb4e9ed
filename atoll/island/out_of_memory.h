#pragma once
// LibTorch's word that memory is used up, as an InputError that says what would fit.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "atoll/base/out_of_memory.h"
#include "atoll/plan/training_memory.h"
#include "atoll/run/config.h"
#include "atoll/run/process_place.h"

namespace atl::island {

/// What the settings want that process to train there. Processes on one machine share its memory.
plan::TrainingFit training_fit(const run::RunConfig& config, c10::Device device,
                               const run::ProcessPlace& place);

bool is_out_of_memory(const c10::Error& error);

/// Throws InputError.
[[noreturn]] void advise(const run::RunConfig& config, c10::Device device,
                         const run::ProcessPlace& place);

/// What `compute` gives. Where memory is used up it throws InputError that says what would fit.
template <typename Compute>
auto with_memory_advice(const run::RunConfig& config, c10::Device device,
                        const run::ProcessPlace& place, const Compute& compute) {
  try {
    return compute();
  } catch (const OutOfMemory&) {
    advise(config, device, place);
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) throw;
    advise(config, device, place);
  }
}

}  // namespace atl::island
