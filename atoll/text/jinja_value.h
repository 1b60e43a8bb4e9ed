#pragma once
// What a template computes with: Python's values, as far as templates see them. Internal to the
// jinja files. Lists and dictionaries never change once made (transformers' sandbox forbids it), so
// they are shared; only namespaces change, and those belong to the evaluation (an arena), so that
// no cycle keeps memory.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/text/jinja.h"

namespace atl::text::jinja {

/// What goes wrong while a template is read or evaluated; JinjaTemplate adds its name and the line.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fail(const std::string& what);

/// The bounds of one evaluation. A hostile template ends here, with a message.
class Meter {
 public:
  void step() {
    if (++steps_ > kMaxSteps) fail("the template takes too many steps");
  }
  /// Bytes of text read or made; one text has at most kMaxText.
  void text(size_t bytes);
  /// Places of lists and dictionaries made or compared.
  void items(size_t count);

  static constexpr size_t kMaxSteps = 5'000'000;
  static constexpr size_t kMaxText = size_t{1} << 26;   // 64 MiB.
  static constexpr size_t kMaxBytes = size_t{1} << 30;  // 1 GiB in all.
  static constexpr size_t kMaxItems = size_t{1} << 22;  // 4 M in all.
  static constexpr int kMaxNesting = 100;               // Of lists in lists.
  static constexpr int64_t kMaxRange = 100'000;         // Jinja2's own bound.

 private:
  size_t steps_ = 0;
  size_t bytes_ = 0;
  size_t items_ = 0;
};

struct Undefined {
  std::shared_ptr<const std::string> what;  // "'x' is undefined", for messages.
  bool may_be_used = false;  // Also where undefined values are errors: an `if` without `else`.
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  // Valid UTF-8.
  bool is_safe = false;                      // Passed through `safe` or `escape`.
};
struct Sequence;
struct Mapping;
struct Namespace;  // The evaluation's.
struct Loop;       // The evaluation's.
struct MacroValue;
struct BoundMethod;
enum class Function : uint8_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Mapping>, std::shared_ptr<const BoundMethod>, Namespace*,
                   Loop*, const MacroValue*, Function>;

  Value() : data_(None{}) {}
  Value(Data data) : data_(std::move(data)) {}  // NOLINT(google-explicit-constructor)

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  const Sequence* sequence() const {
    const auto* found = as<std::shared_ptr<const Sequence>>();
    return found ? found->get() : nullptr;
  }
  const Mapping* mapping() const {
    const auto* found = as<std::shared_ptr<const Mapping>>();
    return found ? found->get() : nullptr;
  }
  /// The text's bytes; null where it is none.
  const std::string* text() const {
    const auto* found = as<Text>();
    return found ? found->bytes.get() : nullptr;
  }

 private:
  Data data_;
};

struct Sequence {
  enum Kind {
    kList,
    kTuple,
    kRange,
    kView,      // A dictionary's keys(), values(), items(): no places, but a length.
    kIterator,  // What filters like `map` give: read once, without a length.
  };
  Kind kind = kList;
  std::vector<Value> items;
  int nesting = 1;
  mutable bool is_used = false;  // An iterator's.
};

/// In the order of insertion, as Python's.
struct Mapping {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> places;  // By key_of().
  int nesting = 1;

  const Value* find(const std::string& key) const {
    const auto found = places.find(key);
    return found == places.end() ? nullptr : &entries[found->second].second;
  }
};

struct Namespace {
  std::unordered_map<std::string, Value> attributes;
};

struct Loop {
  std::vector<Value> items;
  size_t index0 = 0;
  std::vector<Value> changed;  // The arguments of the last loop.changed().
  bool has_changed = false;
};

struct BoundMethod {
  Value receiver;
  std::string name;
};

Value make_text(std::string bytes, bool is_safe = false);
Value make_undefined(std::string what, bool may_be_used = false);
/// Throw Failure where it would lie deeper than kMaxNesting.
Value make_sequence(Sequence::Kind kind, std::vector<Value> items, Meter& meter);
Value make_mapping(std::vector<std::pair<Value, Value>> entries, Meter& meter);
Value from_json(const nlohmann::ordered_json& json, Meter& meter, int depth = 0);

/// "str", "list": for messages, as Python calls it.
const char* type_name(const Value& value);
/// A bool counts as a whole number, as in Python. False where it is none.
bool get_integer(const Value& value, int64_t& integer);
bool is_number(const Value& value);
double to_double(const Value& number);

/// What equal keys share; empty where the value cannot be a key.
std::string key_of(const Value& value);

/// Whether the evaluation refuses to touch undefined values.
struct Rules {
  Meter& meter;
  const JinjaOptions& options;
};

bool truth(const Rules& rules, const Value& value);
/// str(value).
std::string to_text(const Rules& rules, const Value& value);
std::string repr(const Rules& rules, const Value& value);
bool equal(const Rules& rules, const Value& a, const Value& b);
/// a < b; throws Failure where Python has no order for them.
bool less(const Rules& rules, const Value& a, const Value& b);
bool contains(const Rules& rules, const Value& container, const Value& item);
/// The items in order: characters, keys, elements.
std::vector<Value> iterate(const Rules& rules, const Value& value);
/// len(value).
int64_t length_of(const Rules& rules, const Value& value);
/// Complains of an undefined value.
[[noreturn]] void fail_undefined(const Undefined& undefined);
void require_defined(const Value& value);
/// The same where the options want undefined values to be errors.
void require_defined_if_strict(const Rules& rules, const Value& value);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Rules& rules, const Value& value, const JsonStyle& style);
/// A float as Python writes it.
std::string float_text(double value);

}  // namespace atl::text::jinja
