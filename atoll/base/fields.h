#pragma once
// The fields of a struct, named once, in a member
//
//   void visit(auto&& field) { field("name", name), field("loss", loss); }
//
// with more behind a field where one of its readers needs that: a help, a range, a metric. JSON
// (base/fields_json.h), events (base/event.h), settings in TOML (base/settings.h) and the metrics
// of a run's status are made from such lists; only the wire has its own (swarm/fields.h).
#include <type_traits>
#include <utility>

namespace atl {

/// Behind a field: JSON has it only where it is not what a new struct has.
struct LeftOutWhenNew {};
/// Behind a field that older programs did not write: JSON may lack it.
struct MayLack {};
/// Behind a text: an empty one is null in JSON.
struct NullWhenEmpty {};
/// Behind what is made of numbers: JSON with one below 0 or above this is refused.
struct UpTo {
  double most;
};
template <typename Tag, typename... More>
inline constexpr bool kIsAmong = (std::is_same_v<Tag, More> || ...);

/// Calls field(name, part, more...) for each field; of a constant struct the parts are constant.
template <typename T, typename Field>
void visit_fields(T& value, Field&& field) {
  // One visit() serves both: of a constant, nothing gets a part that it could change.
  const_cast<std::remove_const_t<T>&>(value).visit(
      [&](const char* name, auto& part, const auto&... more) {
        if constexpr (std::is_const_v<T>) {
          field(name, std::as_const(part), more...);
        } else {
          field(name, part, more...);
        }
      });
}

}  // namespace atl
