#pragma once
// Schemas to cases: follows references, puts what is required together, and multiplies out what may
// be one or the other. For one compilation, on one thread.
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "atoll/grammar/grammar.h"
#include "atoll/grammar/schema_case.h"
#include "atoll/grammar/schema_references.h"

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
  /// Whether a value is one of the case.
  bool admits(const SchemaCase& one, const Json& value);
  /// Whether all of the schemas hold for a value.
  bool holds(std::span<const SchemaNode> nodes, const Json& value);
  /// That no value is right by both; false as well where that cannot be told.
  bool values_are_disjoint(std::span<const SchemaNode> a, std::span<const SchemaNode> b);
  /// A schema made here, in `node`'s place.
  SchemaNode made(const SchemaNode& node, Json schema);
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
  Cases negate_compositions(const SchemaNode& node, const std::string& keyword, Cases cases);
  Cases negate_values(const SchemaNode& node, const std::string& keyword, Cases cases);
  Cases one_of(const SchemaNode& node, const Cases& cases);
  static bool is_dependency(const std::string& keyword);
  std::vector<SchemaNode> dependencies(const SchemaNode& node, const std::string& keyword);
  Cases without_value(const SchemaNode& node, Cases cases, const Json& value);
  template <typename Look>
  bool apart(const Look& look);
  bool admits_array(const SchemaCase& one, const Json& value);
  bool admits_object(const SchemaCase& one, const Json& value);
  bool are_disjoint(const SchemaCase& a, const SchemaCase& b);
  bool objects_are_disjoint(const SchemaCase& a, const SchemaCase& b);

  const GrammarLimits& limits_;
  SchemaReferences references_;
  std::map<std::tuple<const Json*, std::string, std::string>, Json> made_;  // By place and text.
  std::map<std::string, std::shared_ptr<const Automaton>> patterns_;
  std::vector<const Json*> open_;  // Schemas that are being applied in place.
  int num_apart_ = 0;
  int num_comparisons_ = 0;
};

}  // namespace atl::grammar
