#pragma once
// LibTorch's word that memory is used up, as an InputError that says what would fit.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "atoll/plan/training_memory.h"
#include "atoll/run/config.h"
#include "atoll/run/process_place.h"

namespace atl::island {

/// What the settings want that process to train there. Processes on one machine share its memory.
plan::TrainingFit training_fit(const run::RunConfig& config, c10::Device device,
                               const run::ProcessPlace& place);

/// Called where it was caught: throws InputError with advice if that is what it says, else the
/// error again.
[[noreturn]] void explain(const c10::Error& error, const run::RunConfig& config, c10::Device device,
                          const run::ProcessPlace& place);

/// What `compute` gives.
template <typename Compute>
auto with_memory_advice(const run::RunConfig& config, c10::Device device,
                        const run::ProcessPlace& place, const Compute& compute) {
  try {
    return compute();
  } catch (const c10::Error& error) {
    explain(error, config, device, place);
  }
}

}  // namespace atl::island
