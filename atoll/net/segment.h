#pragma once
// What travels on a connection, in the clear or inside TLS: segments, each a header of 16 bytes and
// a body. First each side says Hello (or why not), then come pieces of frames. Numbers are
// little-endian. Pure.
//
//   size of the body: 4 bytes | kind: 1 | zeros: 3 | the frame's xxh3-64, in its last piece: 8
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/base/result.h"
#include "atoll/net/transport.h"

namespace atl::net {

/// Raised with every change that older peers would misread.
constexpr uint16_t kProtocolVersion = 3;

constexpr size_t kHeaderBytes = 16;
/// Frames travel in pieces of at most this where they are paced, so that pacing is fine,
constexpr size_t kPacedPieceBytes = size_t{64} << 10;
/// and elsewhere of this, for each costs some time.
constexpr size_t kMaxPieceBytes = size_t{512} << 10;
constexpr size_t kMaxReasonBytes = 512;

enum class SegmentKind : uint8_t {
  kHello = 1,    // The version, and what the caller wants the connection for.
  kRefusal = 2,  // Instead of a Hello: the reason, for people.
  kPiece = 3,
  kLastPiece = 4,  // It ends its frame.
  kGoodbye = 5,    // The sender has sent everything and closes the connection.
  kPing = 6,       // Answered by kPong at once.
  kPong = 7,
};

struct SegmentHeader {
  SegmentKind kind = SegmentKind::kPiece;
  uint32_t size = 0;
  uint64_t checksum = 0;
};

std::array<std::byte, kHeaderBytes> encode(const SegmentHeader& header);
/// Nothing when it is none, or its body is longer than its kind's may be.
std::optional<SegmentHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes);

struct Hello {
  uint16_t version = kProtocolVersion;
  Plane plane = Plane::kControl;
};

/// With their headers.
Bytes encode(const Hello& hello);
Bytes encode_refusal(const std::string& reason);
/// The body of a Hello. Of another version only that is read.
std::optional<Hello> decode_hello(std::span<const std::byte> body);
/// Why the other side's version will not do; empty when it does.
std::string version_mismatch(const Hello& theirs);

}  // namespace atl::net
