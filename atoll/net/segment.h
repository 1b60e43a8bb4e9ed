#pragma once
// A piece of a frame as the Segment of atoll.proto. Written and read by hand, so that a frame's
// bytes go to the socket from where they lie, and from gRPC's buffers to their place in one copy.
// Private to atoll/net: this header brings in gRPC.
#include <grpcpp/support/byte_buffer.h>

#include <optional>

#include "atoll/net/connection.h"

namespace atl::net {

/// More than the fields beside the data take.
constexpr int kSegmentOverhead = 64;

/// The buffer shares the frame's memory, and keeps it.
grpc::ByteBuffer to_segment(const Connection::OutPiece& piece);
/// Nothing when the bytes are no Segment, or its data has more than kMaxPieceBytes. Unknown fields
/// are skipped, as protobuf does.
std::optional<Connection::Piece> to_piece(grpc::ByteBuffer& segment);

}  // namespace atl::net
