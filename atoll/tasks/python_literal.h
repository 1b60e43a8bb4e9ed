#pragma once
// Python's literals as ast.literal_eval reads them: what a task's template writes to say a list of
// choices. Pure function.
#include <string>
#include <string_view>

#include "atoll/tasks/json.h"

namespace atl::tasks {

/// Strings, whole and broken numbers, True, False, None, and lists and tuples of them. Throws
/// InputError beginning with `where` at anything else (dictionaries, sets and bytes too).
Json parse_python_literal(std::string_view text, const std::string& where);

}  // namespace atl::tasks
