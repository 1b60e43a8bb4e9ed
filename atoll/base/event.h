#pragma once
// What happened in a run, for people and for programs. Each kind is a struct of its fields and of
// the sentence that they make:
//
//   struct IslandReady {
//     static constexpr const char* kKind = "island_ready";
//     std::string island;
//     void visit(auto&& field) const { field("island", island); }
//     std::string sentence() const;
//   };
//
// People read the sentence on stderr; programs read the fields (event_log.h keeps them). Kinds and
// fields stand in docs/events.md: what is published keeps its name and its meaning.
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace atl {

template <typename T>
concept EventKind = requires(const T& event) {
  { T::kKind } -> std::convertible_to<const char*>;
  { event.sentence() } -> std::convertible_to<std::string>;
};

/// An event of any kind.
struct Event {
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

  template <EventKind Kind>
  // NOLINTNEXTLINE(google-explicit-constructor): it is the same event.
  Event(const Kind& event) : kind(Kind::kKind), sentence(event.sentence()) {
    event.visit([this](const char* name, const auto& value) { this->add(name, value); });
  }

  std::string kind;
  std::string sentence;
  std::vector<std::pair<std::string, Value>> fields;

  bool operator==(const Event&) const = default;

 private:
  template <typename T>
  void add(const char* name, const std::optional<T>& value) {
    if (value) add(name, *value);
  }
  template <typename T>
  void add(const char* name, const T& value) {
    if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      fields.emplace_back(name, static_cast<int64_t>(value));
    } else {
      fields.emplace_back(name, value);
    }
  }
};

/// Who is told of events. Where several threads tell, it says so.
using EventSink = std::function<void(const Event&)>;

/// One object on one line: `time` (seconds since 1970), `kind`, the fields, `sentence`.
std::string to_json(const Event& event, double time);

}  // namespace atl
