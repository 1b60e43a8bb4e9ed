#pragma once
// What expressions do to values: arithmetic, places, attributes. Internal.
#include <span>

#include "atoll/text/jinja_value.h"

namespace atl::text::jinja {

/// + - * / // % **, as Python's.
Value arithmetic(const Rules& rules, const std::string& operation, const Value& a, const Value& b);
Value negative(const Value& value);
/// value.name: methods first, then keys; undefined where there is neither.
Value attribute(const Value& value, const std::string& name);
/// value[place]: keys and places first, then methods.
Value item(const Rules& rules, const Value& value, const Value& place);
/// value[begin:end:step]; null where left out.
Value slice(const Rules& rules, const Value& value, const Value* begin, const Value* end,
            const Value* step);
/// The parts' text one after the other.
Value concatenate(const Rules& rules, std::span<const Value> parts);
/// & < > ' " as HTML has them.
std::string escape(std::string_view text);
/// Python's "..." % values.
std::string format_percent(const Rules& rules, const std::string& format, const Value& values);
/// The text, which must not be marked as safe: `what` would have to keep the mark.
const std::string& plain_text(const Value& value, const char* what);

}  // namespace atl::text::jinja
