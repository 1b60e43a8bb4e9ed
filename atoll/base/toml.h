#pragma once
// TOML as plain values, and the reading of them that all files of settings share: what is unknown,
// of another type or out of range is told with its line, its name and what may stand there.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/quantity.h"

namespace atl {

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};
struct RealRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

struct TomlValue;
using TomlList = std::vector<TomlValue>;
using TomlTable = std::map<std::string, TomlValue>;
struct TomlDate {
  std::string text;
};

struct TomlValue {
  std::variant<bool, int64_t, double, std::string, TomlDate, TomlList, TomlTable> value;
  int64_t line = 0;  // Where it begins; 0: not in a file.

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  /// As TOML writes it, with the shortest digits that read the same.
  std::string shown() const;
};

/// `where` (a file) is for messages. Throws UsageError "where: line N: why" when it is no TOML.
TomlTable parse_toml(std::string_view text, const std::string& where);
/// A text as TOML writes it.
std::string quoted_toml(const std::string& text);
/// "where: line N", or `where` of a value that is not in a file.
std::string at_line(const std::string& where, int64_t line);

/// What was asked for, or what the value must be: "must be a whole number, not 1.5".
template <typename T>
using TomlResult = tl::expected<T, std::string>;

TomlResult<bool> truth_of(const TomlValue& value);
TomlResult<int64_t> whole_of(const TomlValue& value, IntRange range);
TomlResult<double> real_of(const TomlValue& value, RealRange range);
/// Without choices any text.
TomlResult<std::string> text_of(const TomlValue& value, const std::vector<std::string>& choices);
TomlResult<std::vector<std::string>> texts_of(const TomlValue& value);

/// What a text with a unit may be.
struct QuantityRange {
  std::span<const Unit> units;
  const char* example;
  double max;
  double min = 0;
  const char* least = "";  // `min`, for people.
};
TomlResult<double> quantity_of(const TomlValue& value, const QuantityRange& range);

/// The tables of [[name]], one or more; nothing where the value is anything else, or none.
const TomlList* tables_of(const TomlValue* value);

/// A table, which may have these keys and no others. What is wrong in it goes to `complain`, which
/// throws, or gathers: then the value counts as absent.
class TomlSection {
 public:
  /// `key` is empty where it is about none: then `what` is all of the sentence.
  using Complain =
      std::function<void(int64_t line, const std::string& key, const std::string& what)>;
  /// The table must outlive it.
  TomlSection(const TomlTable& table, const std::vector<std::string>& keys, Complain complain);

  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Nothing where there is no such key.
  const TomlValue* find(const std::string& key) const;

  std::optional<int64_t> whole(const std::string& key, IntRange range) const {
    return read<int64_t>(key, [&](const TomlValue& value) { return whole_of(value, range); });
  }
  std::optional<double> real(const std::string& key, RealRange range) const {
    return read<double>(key, [&](const TomlValue& value) { return real_of(value, range); });
  }
  std::optional<std::string> text(const std::string& key,
                                  const std::vector<std::string>& choices = {}) const {
    return read<std::string>(key, [&](const TomlValue& value) { return text_of(value, choices); });
  }
  std::optional<double> quantity(const std::string& key, const QuantityRange& range) const {
    return read<double>(key, [&](const TomlValue& value) { return quantity_of(value, range); });
  }

 private:
  template <typename T>
  std::optional<T> read(const std::string& key, const auto& reader) const {
    const TomlValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    TomlResult<T> result = reader(*value);
    if (result) return *std::move(result);
    complain_(value->line, key, result.error());
    return std::nullopt;
  }

  const TomlTable& table_;
  Complain complain_;
};

}  // namespace atl
