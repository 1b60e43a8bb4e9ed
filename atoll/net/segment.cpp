#include "atoll/net/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace atl::net {
namespace {

constexpr std::string_view kMagic = "atoll";
constexpr size_t kMaxHelloBytes = 64;  // A later version may say more.

size_t max_size(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kHello:
      return kMaxHelloBytes;
    case SegmentKind::kRefusal:
      return kMaxReasonBytes;
    case SegmentKind::kPiece:
    case SegmentKind::kLastPiece:
      return kMaxPieceBytes;
    case SegmentKind::kGoodbye:
    case SegmentKind::kPing:
    case SegmentKind::kPong:
      return 0;
  }
  return 0;
}

Bytes with_header(SegmentKind kind, std::span<const std::byte> body) {
  const auto header = encode({.kind = kind, .size = static_cast<uint32_t>(body.size())});
  Bytes bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

}  // namespace

std::array<std::byte, kHeaderBytes> encode(const SegmentHeader& header) {
  const auto kind = static_cast<uint32_t>(header.kind);  // Its upper bytes are the zeros.
  std::array<std::byte, kHeaderBytes> bytes{};
  std::memcpy(bytes.data(), &header.size, sizeof header.size);
  std::memcpy(bytes.data() + 4, &kind, sizeof kind);
  std::memcpy(bytes.data() + 8, &header.checksum, sizeof header.checksum);
  return bytes;
}

std::optional<SegmentHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  SegmentHeader header;
  uint32_t kind = 0;
  std::memcpy(&header.size, bytes.data(), sizeof header.size);
  std::memcpy(&kind, bytes.data() + 4, sizeof kind);
  std::memcpy(&header.checksum, bytes.data() + 8, sizeof header.checksum);
  if (kind < static_cast<uint32_t>(SegmentKind::kHello) ||
      kind > static_cast<uint32_t>(SegmentKind::kPong)) {
    return std::nullopt;
  }
  header.kind = static_cast<SegmentKind>(kind);
  if (header.size > max_size(header.kind)) return std::nullopt;
  return header;
}

Bytes encode(const Hello& hello) {
  const Bytes body =
      ByteWriter().put_bytes(as_byte_span(kMagic)).put(hello.version).put(hello.plane).take();
  return with_header(SegmentKind::kHello, body);
}

Bytes encode_refusal(const std::string& reason) {
  return with_header(SegmentKind::kRefusal,
                     as_byte_span(std::string_view(reason).substr(0, kMaxReasonBytes)));
}

std::optional<Hello> decode_hello(std::span<const std::byte> body) {
  constexpr size_t kKnownBytes = kMagic.size() + sizeof(Hello::version);
  if (body.size() < kKnownBytes || std::memcmp(body.data(), kMagic.data(), kMagic.size()) != 0) {
    return std::nullopt;
  }
  Hello hello;
  std::memcpy(&hello.version, body.data() + kMagic.size(), sizeof hello.version);
  if (hello.version != kProtocolVersion) return hello;
  if (body.size() != kKnownBytes + 1) return std::nullopt;
  const auto plane = std::to_integer<uint8_t>(body.back());
  if (plane > static_cast<uint8_t>(kLastPlane)) return std::nullopt;
  hello.plane = static_cast<Plane>(plane);
  return hello;
}

std::string version_mismatch(const Hello& theirs) {
  if (theirs.version == kProtocolVersion) return {};
  return fmt::format("it speaks Atoll protocol {}, this side {}: use one version of Atoll",
                     theirs.version, kProtocolVersion);
}

}  // namespace atl::net
