#pragma once
// The filters and tests that templates may use, by name. Internal.
#include <string>

#include "atoll/text/jinja_methods.h"

namespace atl::text::jinja {

using Filter = Value (*)(const Rules& rules, const Value& value, const Arguments& arguments);
using Test = bool (*)(const Rules& rules, const Value& value, const Arguments& arguments);

/// Null where there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
/// Those that go over lists; find_filter knows them too.
Filter find_list_filter(std::string_view name);

/// value[part][part]... for "a.0.b", as the filters' `attribute` means it.
Value by_path(const Rules& rules, const Value& value, const Value& path);

}  // namespace atl::text::jinja
