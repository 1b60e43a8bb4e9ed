#pragma once
// Activations as they travel: rows of one text, each for a token at its position.
//
// Shapes: T = tokens, C = hidden size.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "atoll/base/bytes.h"
#include "atoll/chain/messages.h"

namespace atl::chain {

/// "fp32", "bf16", "int8".
std::string_view name_of(Precision precision);
std::optional<Precision> precision_of(std::string_view name);

/// Takes what lies before and behind these positions away; rows that are all beyond vanish.
Rows cut(Rows rows, int64_t begin, int64_t end);

/// Of what they have in memory, about.
int64_t num_bytes(const Rows& rows);

/// What a row of so many values has on the wire.
size_t row_bytes(Precision precision, int64_t hidden_size);

/// Rows that a message has at most, one at least: well within what a frame may have.
int64_t most_rows(Precision precision, int64_t hidden_size);

/// Throws InputError where a value is not finite.
Rows encode_rows(std::span<const float> values_TC, int64_t begin, int64_t hidden_size,
                 Precision precision);
/// Throws InputError where they are no rows of so many values, or not finite.
void decode_rows(const Rows& rows, std::span<float> values_TC);

}  // namespace atl::chain
