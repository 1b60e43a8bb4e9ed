#pragma once
// Where a checkpoint's tensors are while they are written and training goes on: copies, in memory
// that is kept for the next checkpoint. Of a model whose processes share it because one machine has
// no room for all of it, they are on the disk instead: some megabytes of memory are in use then,
// whatever the model's size, and each byte is written twice. LibTorch-free. One user at a time.
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/spilled_array.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {

enum class StagingPlace { kMemory, kDisk };

class Staging {
 public:
  /// On the disk: in files of `folder` that have no name, and go with this object.
  Staging(StagingPlace place, std::filesystem::path folder);

  /// So that copy() of such tensors (names and sizes) needs no new memory. Throws InputError where
  /// the disk has no room.
  void make_room(const std::vector<TensorView>& tensors);
  /// Copies those that may change still; the views show the copies then.
  void copy(std::vector<TensorView>& tensors);
  /// Of the copies.
  size_t num_bytes() const;

 private:
  std::span<std::byte> room_for(const TensorView& tensor);

  StagingPlace place_;
  std::filesystem::path folder_;
  std::map<std::string, Bytes> in_memory_;  // By tensor name.
  std::map<std::string, SpilledArray> on_disk_;
};

}  // namespace atl::weights
