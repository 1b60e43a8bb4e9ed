#pragma once
// A template as the parser leaves it: a tree of statements and expressions. Internal.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/text/jinja_value.h"

namespace atl::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum Kind {
    kConstant,  // value
    kName,      // name
    kList,      // parts
    kTuple,     // parts
    kDict,      // parts: key, value, key, value, ...
    kNegative,  // parts[0]; the same of the next two
    kPositive,
    kNot,
    kAnd,  // parts[0], parts[1]
    kOr,
    kArithmetic,   // name: the operator; parts[0], parts[1]
    kConcat,       // parts, by ~
    kCompare,      // parts; names: the operators between them
    kConditional,  // parts: condition, value, value otherwise (may be missing)
    kAttribute,    // parts[0].name
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1] : parts[2] : parts[3]]; null where left out
    kCall,         // parts[0](the other parts; named)
    kFilter,       // parts[0] | name(the other parts; named); parts[0] null: a block's text
    kTest,         // parts[0] is name(the other parts; named)
  };
  Kind kind = kConstant;
  int line = 1;
  int height = 1;  // Of the tree: bounds the evaluation's stack.
  std::string name;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

/// What is assigned to.
struct Target {
  enum Kind { kName, kAttribute, kTuple };
  Kind kind = kName;
  std::string name;  // kAttribute: the namespace's.
  std::string attribute;
  std::vector<Target> parts;
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // Null: none.
};

struct Statement {
  enum Kind {
    kText,        // text
    kPrint,       // expression
    kIf,          // conditions[i]: blocks[i]; one more block is else's
    kFor,         // target in expression, if conditions[0] (may be null): blocks[0], else blocks[1]
    kSet,         // target = expression
    kSetBlock,    // target = blocks[0], through the filters of expression (may be null)
    kMacro,       // name(parameters): blocks[0]
    kGeneration,  // blocks[0], a scope of its own
    kBreak,
    kContinue,
  };
  Kind kind = kText;
  int line = 1;
  std::string text;  // Also a macro's name.
  ExpressionPtr expression;
  Target target;
  std::vector<ExpressionPtr> conditions;
  std::vector<Block> blocks;
  std::vector<Parameter> parameters;
  /// Names that a scope (a loop's body, a macro's) assigns before it reads them: they are undefined
  /// in it until then, even where the variables have them.
  std::vector<std::string> unset;
  std::vector<std::string> unset_in_else;  // The same for a loop's else.
};

struct MacroValue {
  const Statement* statement;
  struct Scope* scope;  // Where it was defined.
};

/// A whole template.
struct Template {
  std::string name;
  JinjaOptions options;
  Block body;
  std::vector<std::string> unset;  // The whole template's.
};

}  // namespace atl::text::jinja
