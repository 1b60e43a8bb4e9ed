#pragma once
// A request's body, read field by field: what has the wrong type, is out of range or is unknown is
// refused by its name. Pure.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "atoll/openai/api_error.h"

namespace atl::openai {

/// A JSON object. Throws ApiError where the body is none, or no UTF-8, or nested too deeply.
Json parse_body(std::string_view body);

/// Fields that are null count as absent.
class Fields {
 public:
  /// `object` must outlive it. `where` begins the fields' names in messages: "stream_options.".
  explicit Fields(const Json& object, std::string where = "");

  /// Null where it is absent.
  const Json* find(const std::string& name);
  const Json& required(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  std::string required_text(const std::string& name);
  bool flag(const std::string& name, bool otherwise);
  std::optional<int64_t> whole(const std::string& name, int64_t least, int64_t most);
  std::optional<double> number(const std::string& name, double least, double most);
  /// Known, and of no consequence here.
  void pass_over(std::initializer_list<const char*> names);
  /// Known, but nothing that can be done here; `allowed` values ask for nothing.
  void refuse_if_there(const std::string& name, std::initializer_list<Json> allowed = {});
  /// Whoever sends more believes that it does something.
  void refuse_unknown() const;

  std::string name_of(const std::string& name) const { return where_ + name; }

 private:
  const Json& object_;
  const std::string where_;
  std::set<std::string> known_;
};

/// A whole number, however it is written (1.0). Nothing where it is none.
std::optional<int64_t> whole_in(const Json& json);

}  // namespace atl::openai
