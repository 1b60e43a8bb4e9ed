#pragma once
// What a replica holds in memory, as sync/, train/ and group/ really keep it: the one reckoning of
// plans and of what training checks before it begins. Of several processes it is process 0's: it
// alone has what the method keeps, and of the training state no other has more. Pure.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "atoll/method/sync_options.h"
#include "atoll/method/train_options.h"
#include "atoll/weights/config.h"

namespace atl::plan {

/// A model, as memory counts it.
struct ModelSize {
  double params = 0;
  double gathered_params = 0;  // Whole at a time in "zero3": two layers, and all outside of layers.
};
ModelSize size_of(const weights::ModelConfig& model);

/// Bytes of process 0, on its device.
struct PlannedMemory {
  double parameters = 0;  // With BF16 the rounded ones too.
  double gradients = 0;
  double moments = 0;      // AdamW's two.
  double outer = 0;        // The global copy, outer momentum, a spare of both, what is to be sent.
  double exchange = 0;     // The mean, encoded contributions, and what data-parallel compares.
  double checkpoint = 0;   // The writer's copies, and moments that came from the other processes.
  double activations = 0;  // Of a micro batch.
  double device = 0;       // What of all these lies on the device; of a CPU all does.
  double host = 0;         // What of all these lies in the host's memory.
};

/// What the method keeps, however the training state is sharded: of gradients all, where its rounds
/// change them.
PlannedMemory method_memory(double params, const method::SyncOptions& sync, int num_members,
                            const method::TrainOptions& train);

/// With the training state: parameters, gradients and moments, as train.shard has them.
PlannedMemory with_state(PlannedMemory memory, const ModelSize& size,
                         const method::TrainOptions& train, int64_t num_processes);

/// What a pass needs beside the training state, in bytes.
struct PassMemory {
  /// What the way back of a row needs of its way forwards, and the largest layer's gradients: on
  /// the CPU what its kernels keep, elsewhere what autograd keeps of LibTorch's operations.
  double row = 0;
  /// Of a row's logits and what the loss makes of them; of all rows no more than of a slice
  /// (method::loss_slice).
  double row_logits = 0;
  double most_logits = 0;

  double bytes(int64_t rows) const {
    const auto count = static_cast<double>(rows);
    return row * count + std::min(row_logits * count, most_logits);
  }
  /// The most rows that fit into so much; below 1: none.
  double rows_within(double room) const {
    return std::floor(std::max(room / (row + row_logits), (room - most_logits) / row));
  }
};
PassMemory pass_memory(const weights::ModelConfig& model, const method::TrainOptions& train);

/// With the activations of so many rows at a time.
PlannedMemory with_rows(PlannedMemory memory, const PassMemory& pass, int64_t rows);

/// Of a device's memory a plan uses so much: the rest is the libraries', and what they cannot use.
constexpr double kUsableMemory = 0.9;

}  // namespace atl::plan
