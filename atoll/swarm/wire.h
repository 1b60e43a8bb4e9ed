#pragma once
// Messages as bytes. A frame is: magic u32 | protocol version u16 | kind u8 | header | fields in
// the order of the struct; little-endian, strings and lists preceded by a u32 count, maps as lists
// of pairs in the order of their keys.
#include <span>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

/// Counts beyond this are refused before anything is allocated for them.
constexpr uint32_t kMaxListSize = 65'536;
constexpr size_t kMaxTextBytes = size_t{1} << 20;

Bytes encode(const Message& message);

/// Throws InputError, saying what is wrong, unless `frame` is exactly one message of this protocol.
/// Of other protocol versions Hello and Refused are understood.
Message decode(std::span<const std::byte> frame);

/// "Hello", "Part", ...: for people.
std::string kind_name(const Message& message);

}  // namespace atl::swarm
