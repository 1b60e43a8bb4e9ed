#pragma once
// Parts as frames without copies of their data: the bytes of swarm/wire.h, whose last field is the
// data. Pure.
#include <optional>
#include <span>

#include "atoll/net/transport.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

/// The frame of a part whose data is bytes [begin, begin + size) of the blob.
net::SharedFrame part_frame(const swarm::Part& part, std::shared_ptr<const Bytes> blob,
                            size_t begin, size_t size);

struct PartView {
  swarm::Part part;                 // Without data.
  std::span<const std::byte> data;  // The part's, which lies in the frame.
};

/// How long the fields before the data are in parts with this header.
size_t part_head_bytes(const swarm::Header& header);
/// Nothing unless the frame is a part with a head of that length: then swarm::decode() says what it
/// is.
std::optional<PartView> view_part(std::span<const std::byte> frame, size_t head_bytes);

}  // namespace atl::collective
