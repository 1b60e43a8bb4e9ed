#pragma once
// Calls: arguments, and the methods of Python's texts, lists and dictionaries. Internal.
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/text/jinja_value.h"

namespace atl::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  Arguments only_positional() const { return {positional, {}}; }
};

/// Arguments by the names of a callee's parameters; refuses those that it does not have. A
/// parameter whose name is empty is given by place only. The arguments must outlive it.
class Bound {
 public:
  Bound(std::string callee, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters);
  Bound(std::string callee, Arguments&& arguments,
        std::initializer_list<std::string_view> parameters) = delete;

  /// Null where it is not given.
  const Value* get(size_t place) const { return values_[place]; }
  const Value& need(size_t place) const;
  bool flag(const Rules& rules, size_t place, bool otherwise) const;
  int64_t integer(size_t place, int64_t otherwise) const;
  /// Given and not none.
  std::optional<std::string> text(size_t place) const;

 private:
  std::string callee_;
  std::vector<const Value*> values_;
};

/// Whether value.name is a method; fails for one of Python's that this version does not have.
bool has_method(const Value& value, const std::string& name);
Value call_method(const Rules& rules, const BoundMethod& method, const Arguments& arguments);
Value loop_attribute(const Value& value, const Loop& loop, const std::string& name);

}  // namespace atl::text::jinja
