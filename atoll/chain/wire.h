#pragma once
// The messages of messages.h as bytes: magic u32 "ATLC" | protocol u16 | kind u8 | the fields in
// the order of the struct, as swarm/fields.h has them.
#include <span>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/chain/messages.h"

namespace atl::chain {

constexpr size_t kMaxHops = 256;

Bytes encode(const Message& message);
/// Throws InputError, saying what is wrong, unless `frame` is exactly one message of this protocol.
Message decode(std::span<const std::byte> frame);
/// Whether it is meant as one: a coordinator hears those of training as well.
bool is_message(std::span<const std::byte> frame);
/// "Work", "Offer", ...: for people.
std::string kind_name(const Message& message);

}  // namespace atl::chain
