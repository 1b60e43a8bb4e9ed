#include "atoll/net/segment.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <array>
#include <utility>

namespace atl::net {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Field number and wire type, as in atoll.proto.
constexpr uint32_t kDataTag = 1 << 3 | 2;
constexpr uint32_t kLastTag = 2 << 3 | 0;
constexpr uint32_t kChecksumTag = 3 << 3 | 1;
constexpr uint32_t kGoodbyeTag = 4 << 3 | 0;

/// `bytes` are within the frame.
grpc::Slice shared_slice(const std::shared_ptr<const SharedFrame>& frame,
                         std::span<const std::byte> bytes) {
  using Owner = std::shared_ptr<const SharedFrame>;
  return {const_cast<std::byte*>(bytes.data()), bytes.size(),
          [](void* owner) { delete static_cast<Owner*>(owner); }, new Owner(frame)};
}

bool read_data(CodedInputStream& in, Bytes& data) {
  uint32_t size = 0;
  if (!in.ReadVarint32(&size) || size > Connection::kMaxPieceBytes) return false;
  data.clear();
  data.reserve(size);
  while (size > 0) {
    const void* chunk = nullptr;
    int available = 0;
    if (!in.GetDirectBufferPointer(&chunk, &available) || available <= 0) return false;
    const auto taken = std::min(size, static_cast<uint32_t>(available));
    const auto* begin = static_cast<const std::byte*>(chunk);
    data.insert(data.end(), begin, begin + taken);
    in.Skip(static_cast<int>(taken));
    size -= taken;
  }
  return true;
}

bool read_flag(CodedInputStream& in, bool& flag) {
  uint64_t value = 0;
  if (!in.ReadVarint64(&value)) return false;
  flag = value != 0;
  return true;
}

bool skip_field(CodedInputStream& in, uint32_t tag) {
  uint64_t value = 0;
  uint32_t size = 0;
  switch (tag & 7) {
    case 0:
      return in.ReadVarint64(&value);
    case 1:
      return in.Skip(8);
    case 2:
      return in.ReadVarint32(&size) && size <= Connection::kMaxPieceBytes &&
             in.Skip(static_cast<int>(size));
    case 5:
      return in.Skip(4);
    default:
      return false;
  }
}

}  // namespace

grpc::ByteBuffer to_segment(const Connection::OutPiece& piece) {
  std::array<uint8_t, kSegmentOverhead> fields;
  uint8_t* end = fields.data();
  if (piece.last) {
    end = CodedOutputStream::WriteTagToArray(kLastTag, end);
    end = CodedOutputStream::WriteVarint32ToArray(1, end);
    end = CodedOutputStream::WriteTagToArray(kChecksumTag, end);
    end = CodedOutputStream::WriteLittleEndian64ToArray(piece.checksum, end);
  }
  if (piece.goodbye) {
    end = CodedOutputStream::WriteTagToArray(kGoodbyeTag, end);
    end = CodedOutputStream::WriteVarint32ToArray(1, end);
  }
  if (piece.size > 0) {
    end = CodedOutputStream::WriteTagToArray(kDataTag, end);
    end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(piece.size), end);
  }
  std::array<grpc::Slice, 4> slices;
  size_t num_slices = 0;
  slices[num_slices++] = grpc::Slice(fields.data(), static_cast<size_t>(end - fields.data()));
  size_t skip = piece.begin;
  size_t rest = piece.size;
  for (auto part : piece.frame ? piece.frame->parts() : decltype(piece.frame->parts()){}) {
    const size_t skipped = std::min(skip, part.size());
    part = part.subspan(skipped);
    skip -= skipped;
    part = part.first(std::min(rest, part.size()));
    rest -= part.size();
    if (!part.empty()) slices[num_slices++] = shared_slice(piece.frame, part);
  }
  return {slices.data(), num_slices};
}

std::optional<Connection::Piece> to_piece(grpc::ByteBuffer& segment) {
  Connection::Piece piece;
  if (segment.Length() == 0) return piece;  // All fields have their defaults.
  grpc::ProtoBufferReader reader(&segment);
  if (!reader.status().ok()) return std::nullopt;
  CodedInputStream in(&reader);
  while (const uint32_t tag = in.ReadTag()) {
    bool is_read = false;
    switch (tag) {
      case kDataTag:
        is_read = read_data(in, piece.data);
        break;
      case kLastTag:
        is_read = read_flag(in, piece.last);
        break;
      case kChecksumTag: {
        google::protobuf::uint64 checksum = 0;
        is_read = in.ReadLittleEndian64(&checksum);
        piece.checksum = checksum;
        break;
      }
      case kGoodbyeTag:
        is_read = read_flag(in, piece.goodbye);
        break;
      default:
        is_read = skip_field(in, tag);
    }
    if (!is_read) return std::nullopt;
  }
  if (!in.ConsumedEntireMessage()) return std::nullopt;
  return piece;
}

}  // namespace atl::net
