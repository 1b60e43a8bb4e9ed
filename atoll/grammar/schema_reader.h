#pragma once
// Schemas to cases: follows references, puts what is required together, and multiplies out what may
// be one or the other. For one compilation, on one thread.
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "atoll/grammar/grammar.h"
#include "atoll/grammar/schema_case.h"

namespace atl::grammar {

class SchemaReader {
 public:
  explicit SchemaReader(const GrammarLimits& limits) : limits_(limits) {}

  using Cases = std::vector<SchemaCase>;
  /// The cases of a value that all of `nodes` hold for. Throws InputError at what is not supported.
  Cases read(std::span<const SchemaNode> nodes);
  /// The schemas that hold for a property of this name; nothing where one forbids it.
  std::optional<std::vector<SchemaNode>> property(const SchemaCase& one, const std::string& name);
  /// The schemas that hold for the item with this number.
  std::optional<std::vector<SchemaNode>> item(const SchemaCase& one, size_t number);
  /// The texts that a string of this case may be, between its quotes; `length` in place of its own.
  Automaton string_body(const SchemaCase& one, Bounds length);
  /// Whether a value that is no array or object is one of the case.
  bool admits(const SchemaCase& one, const Json& value);
  const Automaton& pattern(const SchemaNode& node, const std::string& keyword,
                           const std::string& pattern);

 private:
  enum class Sense : uint8_t { kIs, kIsNot };
  Cases apply(const SchemaNode& node, Cases cases, Sense sense);
  Cases apply_all(const SchemaNode& node, Cases cases);
  Cases apply_any_not(const SchemaNode& node, const Cases& cases);
  /// Keywords that only refine a case; false where `keyword` is none of these.
  bool refine(const SchemaNode& node, const std::string& keyword, SchemaCase& one);
  bool refine_strings(const SchemaNode& node, const std::string& keyword, SchemaCase& one);
  Cases combine(const SchemaNode& node, const std::string& keyword, Cases cases);
  Cases negate(const SchemaNode& node, const std::string& keyword, Cases cases);
  Cases negate_parts(const SchemaNode& node, const std::string& keyword, Cases cases);
  Cases one_of(const SchemaNode& node, const Cases& cases);
  Cases depend(const SchemaNode& node, const std::string& keyword, Cases cases);
  Cases without_value(const SchemaNode& node, Cases cases, const Json& value);
  /// A schema made here, in `node`'s document.
  SchemaNode made(const SchemaNode& node, Json schema);
  SchemaNode resolve(const SchemaNode& node);
  bool are_disjoint(const SchemaCase& a, const SchemaCase& b, int depth);
  bool objects_are_disjoint(const SchemaCase& a, const SchemaCase& b, int depth);

  const GrammarLimits& limits_;
  std::deque<Json> made_;
  std::map<std::string, std::shared_ptr<const Automaton>> patterns_;
  std::vector<const Json*> open_;  // Schemas that are being applied in place.
};

/// `node`'s member, one step deeper.
SchemaNode child(const SchemaNode& node, const std::string& keyword);
SchemaNode child(const SchemaNode& node, const std::string& keyword, const std::string& key);
SchemaNode child(const SchemaNode& node, const std::string& keyword, size_t index);

}  // namespace atl::grammar
