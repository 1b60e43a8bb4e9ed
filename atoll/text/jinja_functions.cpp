#include "atoll/text/jinja_functions.h"

#include <fmt/format.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/clock.h"
#include "atoll/text/jinja_operators.h"

namespace atl::text::jinja {
namespace {

/// datetime.now().strftime(format).
std::string time_text(const std::string& format) {
  const auto now = static_cast<std::time_t>(wall_time());
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(format.size() * 32 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

Value make_range(const Rules& rules, const Arguments& arguments) {
  const Bound bound("range", arguments, {"", "", ""});
  bound.need(0);
  const bool has_begin = bound.get(1) != nullptr;
  const int64_t begin = has_begin ? bound.integer(0, 0) : 0;
  const int64_t end = bound.integer(has_begin ? 1 : 0, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) fail("range: the step must not be 0");
  std::vector<Value> items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (std::ssize(items) == Meter::kMaxRange) {
      fail(fmt::format("range: more than {} numbers", Meter::kMaxRange));
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_sequence(Sequence::kRange, std::move(items), rules.meter);
}

Value make_dict(const Rules& rules, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  const Arguments positional = arguments.only_positional();
  const Bound bound("dict", positional, {""});
  if (const Value* from = bound.get(0)) {
    if (!from->mapping()) fail("dict of something else than a dictionary is not supported");
    entries = from->mapping()->entries;
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(make_text(name), value);
  }
  return make_mapping(std::move(entries), rules.meter);
}

}  // namespace

Value call_function(const Rules& rules, Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRange:
      return make_range(rules, arguments);
    case Function::kDict:
      return make_dict(rules, arguments);
    case Function::kRaiseException: {
      const Bound bound("raise_exception", arguments, {"message"});
      fail(to_text(rules, bound.need(0)));
    }
    case Function::kStrftimeNow: {
      const Bound bound("strftime_now", arguments, {"format"});
      const std::string& format = plain_text(bound.need(0), "strftime_now");
      if (format.size() > 1000) fail("strftime_now: the format is too long");
      return make_text(time_text(format));
    }
    case Function::kNamespace:
      break;
  }
  ATOLL_CHECK(false);
  return Value();
}

}  // namespace atl::text::jinja
