#pragma once
// The functions that every template has. Internal.
#include "atoll/text/jinja_filters.h"

namespace atl::text::jinja {

/// Any but namespace(), whose values are the evaluator's.
Value call_function(const Rules& rules, Function function, const Arguments& arguments);

}  // namespace atl::text::jinja
