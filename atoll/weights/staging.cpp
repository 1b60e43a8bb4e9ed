#include "atoll/weights/staging.h"

#include <algorithm>
#include <utility>

namespace atl::weights {

Staging::Staging(StagingPlace place, std::filesystem::path folder)
    : place_(place), folder_(std::move(folder)) {}

std::span<std::byte> Staging::room_for(const TensorView& tensor) {
  if (place_ == StagingPlace::kMemory) {
    Bytes& buffer = in_memory_[tensor.name];
    buffer.resize(tensor.bytes.size());
    return buffer;
  }
  SpilledArray& array = on_disk_[tensor.name];
  if (array.size() != tensor.bytes.size()) {
    array = SpilledArray();  // First: the disk may have no room for both.
    array = SpilledArray(folder_, tensor.bytes.size());
  }
  return array.bytes();
}

void Staging::make_room(const std::vector<TensorView>& tensors) {
  for (const TensorView& tensor : tensors) {
    if (!tensor.is_final) room_for(tensor);
  }
}

void Staging::copy(std::vector<TensorView>& tensors) {
  for (TensorView& tensor : tensors) {
    if (tensor.is_final) continue;
    const std::span<std::byte> room = room_for(tensor);
    const bool is_on_disk = place_ == StagingPlace::kDisk;
    size_t done = 0;
    read_in_pieces(tensor, [&](std::span<const std::byte> piece) {
      const std::span<std::byte> copied = room.subspan(done, piece.size());
      std::ranges::copy(piece, copied.begin());
      if (is_on_disk) let_rest(copied);
      done += piece.size();
    });
    tensor.bytes = room;
    tensor.is_mapped = is_on_disk;
  }
}

size_t Staging::num_bytes() const {
  size_t sum = 0;
  for (const auto& [name, buffer] : in_memory_) sum += buffer.size();
  for (const auto& [name, array] : on_disk_) sum += array.size();
  return sum;
}

}  // namespace atl::weights
