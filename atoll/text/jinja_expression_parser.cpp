// Expressions, with Jinja2's precedence (which is not Python's: ~ binds tighter than +).
#include <fmt/format.h>

#include <algorithm>

#include "atoll/text/jinja_parser.h"

namespace atl::text::jinja {
namespace {

constexpr int kMaxDepth = 150;   // Of parentheses and the like in a template's source.
constexpr int kMaxHeight = 200;  // Of chains: a + b + c, x | f | g.

std::unique_ptr<Expression> make(Expression::Kind kind, int line, std::string name = "") {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  node->name = std::move(name);
  return node;
}

/// Adds a part (null: left out) and bounds the tree.
void add(Expression& node, ExpressionPtr part) {
  if (part) node.height = std::max(node.height, part->height + 1);
  if (node.height > kMaxHeight) throw SourceFailure(node.line, "the expression is too long");
  node.parts.push_back(std::move(part));
}

class Deeper {
 public:
  Deeper(int& depth, int line) : depth_(depth) {
    if (++depth_ > kMaxDepth) throw SourceFailure(line, "the template lies too deep in brackets");
  }
  ~Deeper() { --depth_; }

 private:
  int& depth_;
};

bool is_constant(const std::string& name, Value& value) {
  if (name == "true" || name == "True") {
    value = Value(true);
  } else if (name == "false" || name == "False") {
    value = Value(false);
  } else if (name == "none" || name == "None") {
    value = Value();
  } else {
    return false;
  }
  return true;
}

}  // namespace

void TokenReader::expect(std::string_view operation) {
  if (!skip(operation)) fail_here(fmt::format("expected '{}', not {}", operation, described()));
}
void TokenReader::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here(fmt::format("expected '{}', not {}", name, described()));
}
void TokenReader::expect(Token::Kind kind) {
  if (now().kind != kind) fail_here(fmt::format("unexpected {}", described()));
  take();
}
std::string TokenReader::take_name(std::string_view what) {
  if (now().kind != Token::kName) fail_here(fmt::format("expected {}, not {}", what, described()));
  return take().text;
}

std::string TokenReader::described() const {
  switch (now().kind) {
    case Token::kText:
      return "text";
    case Token::kString:
      return "a quoted text";
    case Token::kTagEnd:
    case Token::kPrintEnd:
      return "the end of the tag";
    case Token::kTagBegin:
    case Token::kPrintBegin:
      return "a tag";
    case Token::kEnd:
      return "the end of the template";
    default:
      return "'" + now().text + "'";
  }
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Deeper deeper(depth_, reader_.now().line);
  ExpressionPtr node = disjunction();
  while (with_condition && reader_.skip_name("if")) {
    auto conditional = make(Expression::kConditional, reader_.now().line);
    add(*conditional, disjunction());
    add(*conditional, std::move(node));
    add(*conditional, reader_.skip_name("else") ? expression() : nullptr);
    node = std::move(conditional);
  }
  return node;
}

ExpressionPtr ExpressionParser::chain(Expression::Kind kind, std::string_view word,
                                      ExpressionPtr (ExpressionParser::*operand)()) {
  ExpressionPtr left = (this->*operand)();
  while (reader_.skip_name(word)) {
    auto node = make(kind, reader_.now().line);
    add(*node, std::move(left));
    add(*node, (this->*operand)());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::disjunction() {
  return chain(Expression::kOr, "or", &ExpressionParser::conjunction);
}

ExpressionPtr ExpressionParser::conjunction() {
  return chain(Expression::kAnd, "and", &ExpressionParser::negation);
}

ExpressionPtr ExpressionParser::negation() {
  if (!reader_.sees_name("not")) return comparison();
  const Deeper deeper(depth_, reader_.now().line);
  auto node = make(Expression::kNot, reader_.take().line);
  add(*node, negation());
  return node;
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  auto node = make(Expression::kCompare, reader_.now().line);
  add(*node, binary(0));
  while (true) {
    std::string operation;
    if (reader_.now().kind == Token::kOperator &&
        std::ranges::find(kOperators, reader_.now().text) != std::end(kOperators)) {
      operation = reader_.take().text;
    } else if (reader_.skip_name("in")) {
      operation = "in";
    } else if (reader_.sees_name("not") && reader_.next().is(Token::kName, "in")) {
      reader_.take();
      reader_.take();
      operation = "not in";
    } else {
      break;
    }
    node->names.push_back(operation);
    add(*node, binary(0));
  }
  if (node->names.empty()) return std::move(node->parts[0]);
  return node;
}

/// Level 0: + and -; 1: ~; 2: * / // %; 3: **. Each from left to right, ** too.
ExpressionPtr ExpressionParser::binary(int level) {
  if (level == 4) return unary(true);
  ExpressionPtr left = binary(level + 1);
  const auto sees = [&] {
    if (level == 0) return reader_.sees("+") || reader_.sees("-");
    if (level == 1) return reader_.sees("~");
    if (level == 3) return reader_.sees("**");
    return reader_.sees("*") || reader_.sees("/") || reader_.sees("//") || reader_.sees("%");
  };
  if (level == 1 && sees()) {
    auto node = make(Expression::kConcat, reader_.now().line);
    add(*node, std::move(left));
    while (reader_.skip("~")) add(*node, binary(2));
    return node;
  }
  while (sees()) {
    const Token operation = reader_.take();
    auto node = make(Expression::kArithmetic, operation.line, operation.text);
    add(*node, std::move(left));
    add(*node, binary(level + 1));
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(depth_, reader_.now().line);
  ExpressionPtr node;
  if (reader_.sees("-") || reader_.sees("+")) {
    const Token sign = reader_.take();
    auto signed_node =
        make(sign.text == "-" ? Expression::kNegative : Expression::kPositive, sign.line);
    add(*signed_node, unary(false));
    node = std::move(signed_node);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  while (with_filters) {
    if (reader_.sees("|")) {
      node = filter(std::move(node));
    } else if (reader_.sees_name("is")) {
      node = test(std::move(node));
    } else if (reader_.sees("(")) {
      node = call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = reader_.now();
  if (token.kind == Token::kName) return name_or_constant();
  if (token.kind == Token::kString) {
    auto node = make(Expression::kConstant, token.line);
    std::string text;
    while (reader_.now().kind == Token::kString) text += reader_.take().text;
    node->value = make_text(std::move(text));
    return node;
  }
  if (token.kind == Token::kNumber) {
    auto node = make(Expression::kConstant, token.line);
    node->value = reader_.take().number;
    return node;
  }
  if (reader_.sees("(")) return parenthesised();
  if (reader_.sees("[")) return list();
  if (reader_.sees("{")) return dict();
  reader_.fail_here(fmt::format("unexpected {}", reader_.described()));
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const Token token = reader_.take();
  Value constant;
  if (is_constant(token.text, constant)) {
    auto node = make(Expression::kConstant, token.line);
    node->value = constant;
    return node;
  }
  for (const std::string_view name : {"varargs", "kwargs", "caller"}) {
    if (macro_depth > 0 && token.text == name) {
      throw SourceFailure(token.line, fmt::format("'{}' in a macro is not supported", name));
    }
  }
  for (const std::string_view name : {"self", "super", "lipsum", "cycler", "joiner"}) {
    if (token.text == name) {
      throw SourceFailure(token.line, fmt::format("'{}' is not supported", name));
    }
  }
  return make(Expression::kName, token.line, token.text);
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  const Token::Kind kind = reader_.now().kind;
  return kind == Token::kPrintEnd || kind == Token::kTagEnd || reader_.sees(")") ||
         (!end_name.empty() && reader_.sees_name(end_name));
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, std::string_view end_name) {
  auto node = make(Expression::kTuple, reader_.now().line);
  bool is_tuple = false;
  while (!at_tuple_end(end_name)) {
    add(*node, expression(with_condition));
    if (!reader_.skip(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return node;
  if (node->parts.empty()) {
    reader_.fail_here(fmt::format("expected an expression, not {}", reader_.described()));
  }
  return std::move(node->parts[0]);
}

ExpressionPtr ExpressionParser::parenthesised() {
  const Deeper deeper(depth_, reader_.now().line);
  auto empty = make(Expression::kTuple, reader_.take().line);
  if (reader_.skip(")")) return empty;
  ExpressionPtr node = tuple();
  reader_.expect(")");
  return node;
}

ExpressionPtr ExpressionParser::list() {
  auto node = make(Expression::kList, reader_.take().line);
  while (!reader_.skip("]")) {
    if (!node->parts.empty()) reader_.expect(",");
    if (reader_.skip("]")) break;
    add(*node, expression());
  }
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  auto node = make(Expression::kDict, reader_.take().line);
  while (!reader_.skip("}")) {
    if (!node->parts.empty()) reader_.expect(",");
    if (reader_.skip("}")) break;
    add(*node, expression());
    reader_.expect(":");
    add(*node, expression());
  }
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  while (true) {
    if (reader_.sees(".") || reader_.sees("[")) {
      node = subscript(std::move(node));
    } else if (reader_.sees("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr node) {
  const Token open = reader_.take();
  if (open.text == ".") {
    const Token token = reader_.take();
    if (token.kind == Token::kNumber && token.number.is<int64_t>()) {
      auto item = make(Expression::kItem, open.line);
      auto place = make(Expression::kConstant, open.line);
      place->value = token.number;
      add(*item, std::move(node));
      add(*item, std::move(place));
      return item;
    }
    if (token.kind != Token::kName) throw SourceFailure(token.line, "expected a name behind '.'");
    auto attribute = make(Expression::kAttribute, open.line, token.text);
    add(*attribute, std::move(node));
    return attribute;
  }
  auto item = make(Expression::kItem, open.line);
  add(*item, std::move(node));
  ExpressionPtr first = reader_.sees(":") ? nullptr : expression();
  add(*item, std::move(first));
  if (reader_.skip(":")) {
    item->kind = Expression::kSlice;
    const auto part = [&]() -> ExpressionPtr {
      return reader_.sees(":") || reader_.sees("]") ? nullptr : expression();
    };
    add(*item, part());
    add(*item, reader_.skip(":") ? part() : nullptr);
  }
  if (reader_.sees(",")) reader_.fail_here("several places in one pair of [] are not supported");
  reader_.expect("]");
  return item;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  auto node = make(Expression::kCall, reader_.now().line);
  add(*node, std::move(callee));
  arguments(*node);
  return node;
}

void ExpressionParser::arguments(Expression& node) {
  reader_.expect("(");
  bool is_first = true;
  while (!reader_.skip(")")) {
    if (!is_first) reader_.expect(",");
    is_first = false;
    if (reader_.skip(")")) break;
    if (reader_.sees("*") || reader_.sees("**")) {
      reader_.fail_here(fmt::format("{}arguments are not supported", reader_.now().text));
    }
    if (reader_.now().kind == Token::kName && reader_.next().is(Token::kOperator, "=")) {
      const std::string name = reader_.take().text;
      reader_.take();
      ExpressionPtr value = expression();
      node.height = std::max(node.height, value->height + 1);
      for (const auto& [other, expression] : node.named) {
        if (other == name) reader_.fail_here(fmt::format("the argument {} is given twice", name));
      }
      node.named.emplace_back(name, std::move(value));
    } else {
      if (!node.named.empty()) reader_.fail_here("an argument without name follows a named one");
      add(node, expression());
    }
  }
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr on) {
  reader_.expect("|");
  const int line = reader_.now().line;
  const std::string name = reader_.take_name("a filter");
  if (!is_filter(name) || reader_.sees(".")) {
    throw SourceFailure(line, fmt::format("the filter '{}' is not supported", name));
  }
  auto node = make(Expression::kFilter, line, name);
  add(*node, std::move(on));
  if (reader_.sees("(")) arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr on) {
  while (reader_.sees("|")) on = filter(std::move(on));
  return on;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr on) {
  const int line = reader_.take().line;
  const bool is_negated = reader_.skip_name("not");
  const std::string name = reader_.take_name("a test");
  if (!is_test(name) || reader_.sees(".")) {
    throw SourceFailure(line, fmt::format("the test '{}' is not supported", name));
  }
  auto node = make(Expression::kTest, line, name);
  add(*node, std::move(on));
  const Token& token = reader_.now();
  const bool begins_value = token.kind == Token::kName || token.kind == Token::kString ||
                            token.kind == Token::kNumber || reader_.sees("[") || reader_.sees("{");
  if (reader_.sees("(")) {
    arguments(*node);
  } else if (begins_value && !reader_.sees_name("else") && !reader_.sees_name("or") &&
             !reader_.sees_name("and")) {
    if (reader_.sees_name("is")) reader_.fail_here("tests cannot be chained: use 'and'");
    const Deeper deeper(depth_, line);
    add(*node, postfix(primary()));
  }
  if (!is_negated) return node;
  auto negated = make(Expression::kNot, line);
  add(*negated, std::move(node));
  return negated;
}

}  // namespace atl::text::jinja
