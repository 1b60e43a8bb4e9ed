#pragma once
// What makes a replica's training fit into its device's memory: rows at a time, activation
// checkpointing, BF16. Pure.
#include <cstdint>
#include <string>

#include "atoll/method/sync_options.h"
#include "atoll/method/train_options.h"
#include "atoll/plan/plan_memory.h"
#include "atoll/weights/config.h"

namespace atl::plan {

/// A process of a replica that is to train, and what shares that much memory with it.
struct TrainingFit {
  weights::ModelConfig model;
  method::TrainOptions train;
  int64_t rows = 1;           // The replica's share of a step: micro_batch_rows at a time, 0: all.
  int64_t num_processes = 1;  // Of the replica.
  double memory_bytes = 0;
  int64_t local_processes = 1;  // Of the replica, there; the others keep nothing for the method.
  int64_t local_islands = 1;    // With as many processes each.
  PlannedMemory kept = {};      // For the method, by process 0 (method_memory()).

  bool is_on_cpu() const { return train.device == "cpu"; }
  /// Micro-batches are dealt to processes whole, or their rows are (group/share.h).
  int64_t rows_at_a_time() const {
    const int64_t micro = train.micro_batch_rows > 0 ? train.micro_batch_rows : rows;
    if (rows / micro % num_processes == 0) return micro;
    return micro > num_processes ? micro / num_processes : 1;
  }
};

/// Process 0 of one of so many islands that share train.batch_rows; its memory_bytes is to be set.
TrainingFit fit_of_leader(const weights::ModelConfig& model, const method::TrainOptions& train,
                          const method::SyncOptions& sync, int64_t num_islands,
                          int64_t num_processes);

/// Parameters, gradients and moments, with BF16 the rounded parameters too, and what the method
/// keeps; on a CPU without copies for checkpoints. Process 0's: of several no other has more.
double state_bytes(const TrainingFit& fit);

/// About what activations of so many rows at a time need beside them.
double pass_bytes(const TrainingFit& fit, int64_t rows_at_a_time);

/// Where a machine's memory is full the system ends a process with no word why: throws InputError
/// with memory_advice() if much more is needed than there is.
void require_memory(const TrainingFit& fit);

/// How much is needed and there, and which settings to change, with values that would fit: the end
/// of a sentence that says what went wrong. What `was_tried` does not fit, whatever is reckoned.
std::string memory_advice(const TrainingFit& fit, bool was_tried = false);

}  // namespace atl::plan
