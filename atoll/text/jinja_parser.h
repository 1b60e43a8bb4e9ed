#pragma once
// Tokens to a tree. Internal.
#include <vector>

#include "atoll/text/jinja_lexer.h"
#include "atoll/text/jinja_syntax.h"

namespace atl::text::jinja {

/// Throws SourceFailure: wrong, or not supported.
Block parse(const std::vector<Token>& tokens, const JinjaOptions& options);

/// The tokens and where the parsers of statements and expressions are among them.
class TokenReader {
 public:
  explicit TokenReader(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool sees(std::string_view operation) const { return now().is(Token::kOperator, operation); }
  bool sees_name(std::string_view name) const { return now().is(Token::kName, name); }
  bool skip(std::string_view operation) { return sees(operation) && (++at_, true); }
  bool skip_name(std::string_view name) { return sees_name(name) && (++at_, true); }
  void expect(std::string_view operation);
  void expect_name(std::string_view name);
  void expect(Token::Kind kind);
  std::string take_name(std::string_view what);
  [[noreturn]] void fail_here(const std::string& what) const {
    throw SourceFailure(now().line, what);
  }
  /// The token, for messages.
  std::string described() const;

 private:
  const std::vector<Token>& tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  ExpressionPtr expression(bool with_condition = true);
  /// "a, b" without parentheses is a tuple.
  ExpressionPtr tuple(bool with_condition = true, std::string_view end_name = "");
  /// Filters behind `on`, which may be null.
  ExpressionPtr filters(ExpressionPtr on);
  /// In a macro some names mean what this version does not have.
  int macro_depth = 0;

 private:
  /// Operands with `word` between them, from the left.
  ExpressionPtr chain(Expression::Kind kind, std::string_view word,
                      ExpressionPtr (ExpressionParser::*operand)());
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr binary(int level);
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr filter(ExpressionPtr on);
  ExpressionPtr test(ExpressionPtr on);
  ExpressionPtr call(ExpressionPtr callee);
  void arguments(Expression& node);
  ExpressionPtr name_or_constant();
  bool at_tuple_end(std::string_view end_name) const;

  TokenReader& reader_;
  int depth_ = 0;
};

/// What the evaluator knows: for refusing the rest where a template is read.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace atl::text::jinja
