#pragma once
// Checkpoints, written beside training. The order of events:
//   reserve()    once, before training: the first touch of new memory can cost ten times a copy
//   begin()      the trainer hands over views of live memory; nothing is copied yet
//   (thread)     copies the tensors to buffers of its own while the next forward and backward run:
//                parameters change only inside the optimiser's update
//   release()    the trainer, before that update, waits until the copy is done (usually long ago)
//   (thread)     hashes, writes to NAME.tmp, syncs, renames to NAME, deletes the oldest
// So training stands still for a thread start, whatever the model's size. A checkpoint folder
// exists under its final name only when complete; a full disk leaves the previous ones as they
// were.
//
// The copies may lie on the disk (staging.h): memory is then some megabytes, and copying waits for
// the disk where the system has no room to keep what is not written yet.
//
// LibTorch-free. One owner thread.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/weights/safetensors.h"
#include "atoll/weights/staging.h"

namespace atl::weights {

/// One checkpoint to write. The tensors' memory must not change before release(), and that of those
/// which are final not before it is written.
struct CheckpointContents {
  int64_t step = 0;
  bool is_adapter = false;            // Its tensors are no model's (adapter.h).
  std::vector<TensorView> model;      // To model.safetensors, or adapter_model.safetensors.
  std::vector<TensorView> optimizer;  // To optimizer.safetensors; may be empty.
  std::map<std::string, std::string>
      files;               // Other files by name: config.json, tokenizer.json, ...
  std::string data_order;  // JSON: the recipe of the rows, for the manifest.
  /// Runs on the writer's thread once the tensors are copied: adds files that are made from them.
  std::function<void(CheckpointContents&)> complete;
  /// Runs there once the checkpoint is complete. May be empty.
  std::function<void()> written;
  std::vector<std::shared_ptr<const void>> owners;  // Of memory that only this checkpoint uses.
};

class CheckpointWriter {
 public:
  /// Checkpoints go to `folder`/step-NNNNNNNN. `keep` 0 keeps all. The same is written wherever
  /// the copies are.
  CheckpointWriter(std::filesystem::path folder, int64_t keep,
                   StagingPlace place = StagingPlace::kMemory);
  ~CheckpointWriter();

  /// Makes room for checkpoints of these tensors (names and sizes; values are not read), so that
  /// the first one is as quick as the others. Not while one is being written.
  void reserve(const CheckpointContents& contents);
  /// Of its buffers, in memory or on the disk.
  size_t reserved_bytes() const;
  /// Starts one. Waits for the one before (its buffers are reused).
  void begin(CheckpointContents contents);
  /// Returns once the memory given to begin() may change. Seconds waited.
  double release(const Clock& clock);
  /// Waits for the running one; returns its error (disk full, ...) if it failed, once.
  std::optional<std::string> finish();

 private:
  void write(const CheckpointContents& contents);
  void remove_old() const;

  std::filesystem::path folder_;
  int64_t keep_;
  std::jthread thread_;
  Mutex mutex_;
  Condition changed_;
  bool copied_ ATOLL_GUARDED_BY(mutex_) = true;
  std::optional<std::string> error_ ATOLL_GUARDED_BY(mutex_);
  Staging model_;
  Staging optimizer_;
};

/// Complete checkpoints of a folder, oldest first: (step, path). Temporary names are passed over.
std::vector<std::pair<int64_t, std::filesystem::path>> list_checkpoints(
    const std::filesystem::path& folder);

/// A checkpoint, verified on opening: every tensor against the manifest's SHA-256. Throws
/// InputError naming the file and the tensor that is missing, truncated or edited.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& folder);
  const SafetensorsFile& model() const { return model_; }
  const SafetensorsFile& optimizer() const { return optimizer_; }
  const std::string& state() const { return state_; }  // state.json

 private:
  SafetensorsFile model_;
  SafetensorsFile optimizer_;
  std::string state_;
};

}  // namespace atl::weights
