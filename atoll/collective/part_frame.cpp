#include "atoll/collective/part_frame.h"

#include <cstring>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {
using DataSize = uint32_t;  // Ends the head.
}

net::SharedFrame part_frame(const swarm::Part& part, std::shared_ptr<const Bytes> blob,
                            size_t begin, size_t size) {
  Bytes head = swarm::encode(part);
  const auto data_size = static_cast<DataSize>(size);
  std::memcpy(head.data() + head.size() - sizeof(data_size), &data_size, sizeof(data_size));
  return {.head = std::move(head), .blob = std::move(blob), .begin = begin, .num_bytes = size};
}

size_t part_head_bytes(const swarm::Header& header) {
  return swarm::encode(swarm::Part{.header = header}).size();
}

std::optional<PartView> view_part(std::span<const std::byte> frame, size_t head_bytes) {
  if (frame.size() < head_bytes) return std::nullopt;
  DataSize size = 0;
  std::memcpy(&size, frame.data() + head_bytes - sizeof(size), sizeof(size));
  if (size != frame.size() - head_bytes) return std::nullopt;
  Bytes head(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(head_bytes));
  std::memset(head.data() + head_bytes - sizeof(size), 0, sizeof(size));
  try {
    swarm::Message message = swarm::decode(head);
    auto* const part = std::get_if<swarm::Part>(&message);
    if (part == nullptr) return std::nullopt;
    return PartView{std::move(*part), frame.subspan(head_bytes)};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace atl::collective
