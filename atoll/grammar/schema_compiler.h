#pragma once
// Cases of schemas to rules. A rule stands for a set of schemas that hold for the same value, so
// that schemas which contain themselves become rules that call themselves.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/grammar/json_schema.h"
#include "atoll/grammar/schema_reader.h"

namespace atl::grammar {

/// Throws InputError, with `name` in front, where it is no JSON, too large or too deep.
Json parse_schema(std::string_view schema, const GrammarLimits& limits, const std::string& name);

struct Kind;
struct ObjectPlan;
struct SetPlan;

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, const SchemaOptions& options);

  /// The rule for values that all of `nodes` hold for. Their documents must outlive finish().
  RuleId rule(const std::vector<SchemaNode>& nodes);
  /// Defines the rules that were asked for, and those that they ask for.
  void finish();
  /// Returns the state behind optional blanks.
  uint32_t blanks(Nfa& nfa, uint32_t from);
  /// Returns the state behind `"name": VALUE` and blanks.
  uint32_t property(Nfa& nfa, uint32_t from, const std::string& name, RuleId value);

 private:
  Automaton value(const std::vector<SchemaNode>& nodes);
  void add_case(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);
  void add_values(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);
  void add_strings(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);
  void add_numbers(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);
  void add_array(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);
  void add_set(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);
  SetPlan plan_set(const SchemaCase& one);
  void add_others(SetPlan& plan, const SchemaCase& one);
  void add_other_name(Nfa& nfa, uint32_t from, uint32_t to, const std::vector<std::string>& names);
  std::vector<Kind> other_kinds(const SchemaCase& one, const std::vector<std::string>& names);
  uint32_t add_other(Nfa& nfa, uint32_t from, const Kind& kind,
                     const std::vector<std::string>& names);
  void add_properties(Nfa& nfa, uint32_t from, uint32_t to, const ObjectPlan& plan);
  void add_object(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one);

  struct Wanted {
    RuleId rule;
    std::vector<SchemaNode> nodes;
  };
  GrammarBuilder& builder_;
  const SchemaOptions& options_;
  SchemaReader reader_;
  std::map<std::vector<const Json*>, RuleId> rules_;
  std::vector<Wanted> wanted_;
  // The same in all grammars. Texts are strings without the first quote.
  RuleId indent_, text_, string_, integer_, number_;
};

}  // namespace atl::grammar
