#pragma once
// A message of a protocol as a frame: magic u32 | protocol version u16 | kind u8 | the fields in
// the order of the struct (fields.h). A kind is the place in the protocol's variant.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>
#include <variant>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/swarm/fields.h"

namespace atl::swarm {

struct FrameKind {
  uint32_t magic = 0;
  uint16_t version = 0;
  const char* protocol = "";  // Whose messages they are, for people.
};

template <typename Message>
Bytes encode_frame(const FrameKind& frame, const Message& message) {
  ByteWriter out;
  out.put(frame.magic).put(frame.version).put(static_cast<uint8_t>(message.index()));
  FieldWriter writer(out);
  std::visit([&](const auto& m) { visit(writer, m); }, message);
  return out.take();
}

/// A default message of the kind with this index.
template <typename Message, size_t... kIndexes>
Message empty_message(size_t kind, std::index_sequence<kIndexes...> /*indexes*/) {
  Message message;
  ((kind == kIndexes ? void(message.template emplace<kIndexes>()) : void()), ...);
  return message;
}

/// Kinds of `any_version` are understood whatever version they are of. Throws InputError unless the
/// bytes are exactly one message.
template <typename Message>
Message decode_frame(const FrameKind& frame, std::span<const std::byte> bytes,
                     std::initializer_list<size_t> any_version) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != frame.magic) {
    throw InputError(fmt::format("not a message of {}", frame.protocol));
  }
  const auto version = in.get<uint16_t>();
  const auto kind = in.get<uint8_t>();
  if (version != frame.version && std::ranges::find(any_version, kind) == any_version.end()) {
    throw InputError(fmt::format("a message of protocol version {}, and this program speaks {}",
                                 version, frame.version));
  }
  constexpr size_t kNumKinds = std::variant_size_v<Message>;
  if (kind >= kNumKinds) throw InputError(fmt::format("a message of unknown kind {}", kind));
  auto message = empty_message<Message>(kind, std::make_index_sequence<kNumKinds>());
  FieldReader reader(in);
  std::visit([&](auto& m) { visit(reader, m); }, message);
  in.expect_end();
  return message;
}

}  // namespace atl::swarm
