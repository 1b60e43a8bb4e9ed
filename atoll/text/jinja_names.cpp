#include "atoll/text/jinja_names.h"

#include <map>
#include <set>

namespace atl::text::jinja {
namespace {

/// One scope's names. Jinja2 reads a template's variable where a scope reads a name first; one that
/// it assigns first is the scope's own from its begin, and undefined until then.
struct Names {
  const Names* parent = nullptr;
  std::map<std::string, bool> is_unset;  // Of all names that the scope mentions.
  std::set<std::string> stored;

  bool is_known(const std::string& name) const {
    return is_unset.contains(name) || (parent && parent->is_known(name));
  }
  void load(const std::string& name) {
    if (!is_known(name)) is_unset[name] = false;
  }
  void declare(const std::string& name) {
    stored.insert(name);
    is_unset[name] = false;
  }
  void store(const std::string& name) {
    stored.insert(name);
    if (is_unset.contains(name)) return;
    is_unset[name] = !(parent && parent->is_known(name));
  }
  /// What only some ways through an `if` assign comes from outside otherwise.
  void merge(const std::vector<Names>& branches) {
    std::set<std::string> new_stores;
    for (const Names& branch : branches) {
      for (const std::string& name : branch.stored) {
        if (!stored.contains(name)) new_stores.insert(name);
      }
    }
    for (const Names& branch : branches) {
      for (const auto& [name, unset] : branch.is_unset) is_unset[name] = unset;
    }
    for (const std::string& name : new_stores) {
      stored.insert(name);
      is_unset[name] = false;
    }
  }
  std::vector<std::string> unset() const {
    std::vector<std::string> names;
    for (const auto& [name, is] : is_unset) {
      if (is) names.push_back(name);
    }
    return names;
  }
};

void visit(const Expression* expression, Names& names) {
  if (!expression) return;
  if (expression->kind == Expression::kName) names.load(expression->name);
  for (const ExpressionPtr& part : expression->parts) visit(part.get(), names);
  for (const auto& [name, value] : expression->named) visit(value.get(), names);
}

void visit(const Target& target, Names& names) {
  if (target.kind == Target::kName) names.store(target.name);
  if (target.kind == Target::kAttribute) names.load(target.name);
  for (const Target& part : target.parts) visit(part, names);
}

void declare(const Target& target, Names& names) {
  if (target.kind == Target::kName) names.declare(target.name);
  for (const Target& part : target.parts) declare(part, names);
}

void visit(const Block& block, Names& names);

/// As Jinja2 has it: the first branch, all of `elif`, one after the other, and `else` each begin
/// with what was known before.
void visit_branches(const Statement& statement, Names& names) {
  visit(statement.conditions[0].get(), names);
  std::vector<Names> branches(3, names);
  visit(statement.blocks[0], branches[0]);
  for (size_t i = 1; i < statement.conditions.size(); ++i) {
    visit(statement.conditions[i].get(), branches[1]);
    std::vector<Names> branch(1, branches[1]);
    visit(statement.blocks[i], branch[0]);
    branches[1].merge(branch);
  }
  if (statement.blocks.size() > statement.conditions.size()) {
    visit(statement.blocks.back(), branches[2]);
  }
  names.merge(branches);
}

void visit(const Statement& statement, Names& names) {
  switch (statement.kind) {
    case Statement::kPrint:
      return visit(statement.expression.get(), names);
    case Statement::kFor:  // The body is a scope of its own; so are those below.
      return visit(statement.expression.get(), names);
    case Statement::kSet:
      visit(statement.expression.get(), names);
      return visit(statement.target, names);
    case Statement::kSetBlock:
      return visit(statement.target, names);
    case Statement::kMacro:
      return names.store(statement.text);
    case Statement::kIf:
      return visit_branches(statement, names);
    default:
      return;
  }
}

void visit(const Block& block, Names& names) {
  for (const Statement& statement : block) visit(statement, names);
}

void mark(Block& block, const Names& names);

/// The scopes that `statement` begins, inside one that is known in full.
void mark(Statement& statement, const Names& around) {
  if (statement.kind == Statement::kIf) {
    for (Block& block : statement.blocks) mark(block, around);
    return;
  }
  for (size_t i = 0; i < statement.blocks.size(); ++i) {
    Names names{.parent = &around};
    if (statement.kind == Statement::kFor && i == 0) {
      declare(statement.target, names);
      names.declare("loop");
    }
    for (const Parameter& parameter : statement.parameters) names.declare(parameter.name);
    for (const Parameter& parameter : statement.parameters) {
      visit(parameter.otherwise.get(), names);
    }
    visit(statement.blocks[i], names);
    if (i == 0) {
      statement.unset = names.unset();
    } else {
      statement.unset_in_else = names.unset();
    }
    mark(statement.blocks[i], names);
  }
}

void mark(Block& block, const Names& names) {
  for (Statement& statement : block) mark(statement, names);
}

}  // namespace

std::vector<std::string> mark_unset_names(Block& body) {
  Names names;
  visit(body, names);
  mark(body, names);
  return names.unset();
}

}  // namespace atl::text::jinja
