// Filters of lists.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "atoll/text/jinja_filters.h"
#include "atoll/text/jinja_operators.h"
#include "atoll/text/python_text.h"

namespace atl::text::jinja {
namespace {

using Pairs = std::vector<std::pair<Value, Value>>;

Value make_iterator(const Rules& rules, std::vector<Value> items) {
  return make_sequence(Sequence::kIterator, std::move(items), rules.meter);
}

Value small(const Value& value) {
  return value.text() ? make_text(to_lower(plain_text(value, "comparing"))) : value;
}

/// What `sort`, `unique`, `min` and `max` compare.
Value key_for(const Rules& rules, const Value& item, const Value* path, bool case_sensitive) {
  const Value key = path && !path->is<None>() ? by_path(rules, item, *path) : item;
  if (case_sensitive) return key;
  if (const std::string* text = key.text()) rules.meter.text(text->size());
  return small(key);
}

/// The second values by the first ones; stable, as Python's sort. (A multimap stays whole whatever
/// the order says, of numbers that are none too.)
Value sorted(const Rules& rules, Pairs pairs, bool reverse) {
  const auto before = [&](const Value& a, const Value& b) {
    return reverse ? less(rules, b, a) : less(rules, a, b);
  };
  std::multimap<Value, Value, decltype(before)> ordered(before);
  for (auto& [key, value] : pairs) ordered.emplace(std::move(key), std::move(value));
  std::vector<Value> items;
  for (const auto& [key, value] : ordered) items.push_back(value);
  return make_sequence(Sequence::kList, std::move(items), rules.meter);
}

Value filter_first(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("first", arguments, {});
  const std::vector<Value> items = iterate(rules, value);
  return items.empty() ? make_undefined("there is no first item") : items.front();
}

Value filter_last(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("last", arguments, {});
  const Sequence* sequence = value.sequence();
  if (sequence && sequence->kind == Sequence::kIterator) {
    fail("last of a generator: put |list before it");
  }
  const std::vector<Value> items = iterate(rules, value);
  return items.empty() ? make_undefined("there is no last item") : items.back();
}

Value filter_join(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.get(0) ? to_text(rules, *bound.get(0)) : "";
  std::string result;
  bool is_first = true;
  for (const Value& item : iterate(rules, value)) {
    if (!is_first) result += separator;
    is_first = false;
    const bool has_path = bound.get(1) && !bound.get(1)->is<None>();
    result += to_text(rules, has_path ? by_path(rules, item, *bound.get(1)) : item);
    if (result.size() > Meter::kMaxText) break;
  }
  rules.meter.text(result.size());
  return make_text(std::move(result));
}

Value filter_list(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("list", arguments, {});
  return make_sequence(Sequence::kList, iterate(rules, value), rules.meter);
}

Value filter_items(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("items", arguments, {});
  if (value.is<Undefined>()) return make_iterator(rules, {});
  if (!value.mapping()) fail(fmt::format("items of a {}", type_name(value)));
  const Value pairs = call_method(rules, BoundMethod{value, "items"}, {});
  return make_iterator(rules, pairs.sequence()->items);
}

Value filter_dictsort(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1).value_or("key");
  if (by != "key" && by != "value") fail("dictsort: by is key or value");
  if (!value.mapping()) {
    require_defined(value);
    fail(fmt::format("dictsort of a {}", type_name(value)));
  }
  const bool case_sensitive = bound.flag(rules, 0, false);
  Pairs pairs;
  for (const auto& [key, item] : value.mapping()->entries) {
    pairs.emplace_back(key_for(rules, by == "key" ? key : item, nullptr, case_sensitive),
                       make_sequence(Sequence::kTuple, {key, item}, rules.meter));
  }
  return sorted(rules, std::move(pairs), bound.flag(rules, 2, false));
}

Value filter_sort(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(rules, 1, false);
  std::vector<std::string> paths;  // "a,b": by a, then by b.
  const Value* path = bound.get(2);
  if (path && path->text()) {
    for (const std::string_view part : split(*path->text(), ",", -1)) paths.emplace_back(part);
  }
  Pairs pairs;
  for (const Value& item : iterate(rules, value)) {
    std::vector<Value> keys;
    for (const std::string& each : paths) {
      const Value part = make_text(each);
      keys.push_back(key_for(rules, item, &part, case_sensitive));
    }
    if (paths.empty()) keys.push_back(key_for(rules, item, path, case_sensitive));
    pairs.emplace_back(make_sequence(Sequence::kTuple, std::move(keys), rules.meter), item);
  }
  return sorted(rules, std::move(pairs), bound.flag(rules, 0, false));
}

Value filter_unique(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  std::set<std::string> seen;
  std::vector<Value> items;
  for (const Value& item : iterate(rules, value)) {
    const Value key = key_for(rules, item, bound.get(1), bound.flag(rules, 0, false));
    const std::string name = key_of(key);
    if (name.empty()) fail(fmt::format("unique: a {} cannot be compared", type_name(key)));
    if (seen.insert(name).second) items.push_back(item);
  }
  return make_iterator(rules, std::move(items));
}

Value extreme(const Rules& rules, const Value& value, const Arguments& arguments, bool is_max) {
  const Bound bound(is_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(rules, 0, false);
  const std::vector<Value> items = iterate(rules, value);
  if (items.empty()) return make_undefined("min or max of an empty list");
  size_t best = 0;
  Value best_key = key_for(rules, items[0], bound.get(1), case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value key = key_for(rules, items[i], bound.get(1), case_sensitive);
    if (is_max ? !less(rules, best_key, key) : !less(rules, key, best_key)) continue;
    best = i;
    best_key = key;
  }
  return items[best];
}
Value filter_min(const Rules& rules, const Value& value, const Arguments& arguments) {
  return extreme(rules, value, arguments, false);
}
Value filter_max(const Rules& rules, const Value& value, const Arguments& arguments) {
  return extreme(rules, value, arguments, true);
}

Value filter_sum(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const Value* path = bound.get(0);
  Value sum = bound.get(1) ? *bound.get(1) : Value(int64_t{0});
  if (sum.text()) fail("sum: texts cannot be summed");
  for (const Value& item : iterate(rules, value)) {
    sum =
        arithmetic(rules, "+", sum, path && !path->is<None>() ? by_path(rules, item, *path) : item);
  }
  return sum;
}

Value filter_reverse(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("reverse", arguments, {});
  if (value.text()) {
    const Value back(int64_t{-1});
    return slice(rules, value, nullptr, nullptr, &back);
  }
  const Sequence* sequence = value.sequence();
  const bool was_iterator = sequence && sequence->kind == Sequence::kIterator;
  std::vector<Value> items = iterate(rules, value);
  std::ranges::reverse(items);
  return make_sequence(was_iterator ? Sequence::kList : Sequence::kIterator, std::move(items),
                       rules.meter);
}

Value filter_batch(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"});
  bound.need(0);
  const int64_t size = bound.integer(0, 1);
  if (size < 1) fail("batch: a size below 1 is not supported");
  std::vector<Value> rows;
  std::vector<Value> row;
  const auto flush = [&] {
    if (!row.empty()) rows.push_back(make_sequence(Sequence::kList, std::move(row), rules.meter));
    row.clear();
  };
  for (const Value& item : iterate(rules, value)) {
    if (std::ssize(row) == size) flush();
    row.push_back(item);
  }
  const Value* fill = bound.get(1);
  while (!row.empty() && fill && !fill->is<None>() && std::ssize(row) < size) {
    row.push_back(*fill);
    rules.meter.items(1);
  }
  flush();
  return make_iterator(rules, std::move(rows));
}

/// The arguments behind the first `count`, for a filter or test called by name.
Arguments behind(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<int64_t>(count));
  return rest;
}

Value filter_map(const Rules& rules, const Value& value, const Arguments& arguments) {
  std::vector<Value> items;
  if (!truth(rules, value)) return make_iterator(rules, {});
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"});
    if (!bound.get(0)) fail("map needs a filter's name or attribute=");
    const Value* otherwise = bound.get(1) && !bound.get(1)->is<None>() ? bound.get(1) : nullptr;
    for (const Value& item : iterate(rules, value)) {
      const Value found = by_path(rules, item, *bound.get(0));
      items.push_back(found.is<Undefined>() && otherwise ? *otherwise : found);
    }
    return make_iterator(rules, std::move(items));
  }
  const std::string& name = plain_text(arguments.positional[0], "map");
  const Filter filter = find_filter(name);
  if (!filter) fail(fmt::format("the filter '{}' is not supported", name));
  const Arguments rest = behind(arguments, 1);
  for (const Value& item : iterate(rules, value)) {
    rules.meter.step();
    items.push_back(filter(rules, item, rest));
  }
  return make_iterator(rules, std::move(items));
}

Value chosen(const Rules& rules, const Value& value, const Arguments& arguments, bool by_attribute,
             bool wanted) {
  if (!truth(rules, value)) return make_iterator(rules, {});
  const size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) fail("selectattr and rejectattr need an attribute");
  Test test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > first) {
    const std::string& name = plain_text(arguments.positional[first], "select");
    test = find_test(name);
    if (!test) fail(fmt::format("the test '{}' is not supported", name));
    rest = behind(arguments, first + 1);
  } else if (!arguments.named.empty()) {
    fail("select and reject: an argument without a test");
  }
  std::vector<Value> items;
  for (const Value& item : iterate(rules, value)) {
    rules.meter.step();
    const Value seen = by_attribute ? by_path(rules, item, arguments.positional[0]) : item;
    if ((test ? test(rules, seen, rest) : truth(rules, seen)) == wanted) items.push_back(item);
  }
  return make_iterator(rules, std::move(items));
}
Value filter_select(const Rules& rules, const Value& value, const Arguments& arguments) {
  return chosen(rules, value, arguments, false, true);
}
Value filter_reject(const Rules& rules, const Value& value, const Arguments& arguments) {
  return chosen(rules, value, arguments, false, false);
}
Value filter_selectattr(const Rules& rules, const Value& value, const Arguments& arguments) {
  return chosen(rules, value, arguments, true, true);
}
Value filter_rejectattr(const Rules& rules, const Value& value, const Arguments& arguments) {
  return chosen(rules, value, arguments, true, false);
}

}  // namespace

Value by_path(const Rules& rules, const Value& value, const Value& path) {
  if (!path.text()) return item(rules, value, path);
  Value found = value;
  for (const std::string_view part : split(*path.text(), ".", -1)) {
    const bool is_number = !part.empty() && part.size() < 10 &&
                           std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    found = item(
        rules, found,
        is_number ? Value(int64_t{std::stoi(std::string(part))}) : make_text(std::string(part)));
  }
  return found;
}

Filter find_list_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = {
      {"first", filter_first},
      {"last", filter_last},
      {"join", filter_join},
      {"list", filter_list},
      {"items", filter_items},
      {"dictsort", filter_dictsort},
      {"sort", filter_sort},
      {"unique", filter_unique},
      {"min", filter_min},
      {"max", filter_max},
      {"sum", filter_sum},
      {"reverse", filter_reverse},
      {"batch", filter_batch},
      {"map", filter_map},
      {"select", filter_select},
      {"reject", filter_reject},
      {"selectattr", filter_selectattr},
      {"rejectattr", filter_rejectattr}};
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace atl::text::jinja
