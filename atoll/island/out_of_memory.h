#pragma once
// LibTorch's word that memory is used up, as an InputError that says what would fit.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "atoll/base/out_of_memory.h"
#include "atoll/plan/training_memory.h"
#include "atoll/run/config.h"
#include "atoll/run/process_place.h"

namespace atl::island {

/// What the settings want that process to train there. Processes on one machine share its memory.
plan::TrainingFit training_fit(const run::RunConfig& config, c10::Device device,
                               const run::ProcessPlace& place);

bool is_out_of_memory(const c10::Error& error);

/// An InputError's words where what is no pass, of whose rows there may be fewer, found no memory.
std::string outside_of_passes(const std::string& what);
/// The same of LibTorch's error, or what else it says.
std::string reason_of(const c10::Error& error);

/// Throws InputError.
[[noreturn]] void throw_with_advice(const run::RunConfig& config, c10::Device device,
                                    const run::ProcessPlace& place);

/// What the pass `compute` gives. Where memory is used up it throws InputError that says what would
/// fit.
template <typename Compute>
auto with_memory_advice(const run::RunConfig& config, c10::Device device,
                        const run::ProcessPlace& place, const Compute& compute) {
  try {
    return compute();
  } catch (const OutOfMemory&) {
    throw_with_advice(config, device, place);
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) throw;
    throw_with_advice(config, device, place);
  }
}

}  // namespace atl::island
