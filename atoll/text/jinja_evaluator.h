#pragma once
// Walks a template's tree and writes its text. One evaluation, one thread. Internal.
#include <deque>
#include <exception>
#include <string>
#include <unordered_map>

#include "atoll/text/jinja_filters.h"
#include "atoll/text/jinja_syntax.h"

namespace atl::text::jinja {

/// The names that a template's part sees: its own, then those around it.
struct Scope {
  Scope* around = nullptr;
  std::unordered_map<std::string, Value> names;
};

class Evaluator {
 public:
  Evaluator(const Template& from, const nlohmann::ordered_json& variables);

  std::string run();
  /// Of what was evaluated last: where a failure happened.
  int line() const { return line_; }

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };

  Flow run(const Block& block, Scope& scope, std::string& out);
  Flow run(const Statement& statement, Scope& scope, std::string& out);
  Flow run_if(const Statement& statement, Scope& scope, std::string& out);
  Flow run_for(const Statement& statement, Scope& scope, std::string& out);
  /// Those for which a loop's condition holds, up to the first where it fails.
  std::vector<Value> chosen_items(const Statement& loop, const std::vector<Value>& items,
                                  Scope& scope, std::exception_ptr& failure);
  void run_set_block(const Statement& statement, Scope& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  /// Runs in a scope of its own, which goes at the end unless a macro was defined in it.
  template <typename Body>
  auto in_scope(Scope* around, const std::vector<std::string>& unset, const Body& body);
  void write(std::string& out, const std::string& text);

  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_parts(const Expression& node, Scope& scope);
  Value evaluate_compare(const Expression& node, Scope& scope);
  Value evaluate_dict(const Expression& node, Scope& scope);
  Value evaluate_slice(const Expression& node, Scope& scope);
  Value evaluate_filter(const Expression& node, const Value* block, Scope& scope);
  Arguments arguments(const Expression& node, Scope& scope);
  Value look_up(const std::string& name, const Scope& scope) const;

  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const MacroValue& macro, const Arguments& arguments);
  void bind(const MacroValue& macro, const Arguments& arguments, Scope& scope);
  void set_attribute(Namespace& space, const std::string& name, const Value& value) const;
  Value make_namespace(const Arguments& arguments);

  const Template& template_;
  Meter meter_;
  const Rules rules_;
  std::unordered_map<std::string, Value> variables_;
  int line_ = 1;
  int depth_ = 0;
  // What values point to lives as long as the evaluation.
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
  std::deque<Namespace> namespaces_;
  std::deque<MacroValue> macros_;
};

}  // namespace atl::text::jinja
