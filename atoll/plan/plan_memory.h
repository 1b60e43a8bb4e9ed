#pragma once
// What a replica holds in memory, as sync/ and train/ really keep it: FP32 throughout. Pure.
#include <cstdint>

#include "atoll/method/sync_options.h"
#include "atoll/weights/config.h"

namespace atl::plan {

/// Bytes of one replica, on one device.
struct PlannedMemory {
  double parameters = 0;
  double gradients = 0;
  double moments = 0;      // AdamW's two.
  double outer = 0;        // The global copy, outer momentum, a spare of both, what is to be sent.
  double exchange = 0;     // The mean, and encoded contributions.
  double checkpoint = 0;   // The writer's copies.
  double activations = 0;  // Of a micro batch.
  double device = 0;       // What of all these lies on the device; of a CPU all does.
  double host = 0;         // What of all these lies in the host's memory.
};

/// Everything but the activations.
PlannedMemory planned_memory(double params, const method::SyncOptions& sync, int num_members,
                             bool is_cpu);

/// What the backward pass of a row needs of its forward pass, and the largest layer's gradients: on
/// the CPU what its kernels keep, elsewhere what autograd keeps of LibTorch's operations.
double activation_bytes(const weights::ModelConfig& model, int64_t sequence_length, bool is_cpu);

/// With the activations of so many rows at a time.
PlannedMemory with_rows(PlannedMemory memory, double row_bytes, int64_t rows);

/// Of a device's memory a plan uses so much: the rest is the libraries', and what they cannot use.
constexpr double kUsableMemory = 0.9;

}  // namespace atl::plan
