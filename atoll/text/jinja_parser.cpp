// Statements: the tags of a template.
#include "atoll/text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include <utility>

namespace atl::text::jinja {
namespace {

constexpr int kMaxBlocks = 40;  // Tags in tags.

class Parser {
 public:
  Parser(const std::vector<Token>& tokens, const JinjaOptions& options)
      : options_(options), reader_(tokens), expressions_(reader_) {}

  Block run() { return block({}); }

 private:
  bool sees_end(std::initializer_list<std::string_view> ends) const {
    for (const std::string_view end : ends) {
      if (reader_.sees_name(end)) return true;
    }
    return false;
  }

  /// Up to a tag of `ends`, whose name is then the current token.
  Block block(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxBlocks) reader_.fail_here("the tags lie too deep in each other");
    Block statements;
    while (reader_.now().kind != Token::kEnd) {
      const Token token = reader_.take();
      if (token.kind == Token::kText) {
        statements.push_back(make(Statement::kText, token.line));
        statements.back().text = token.text;
      } else if (token.kind == Token::kPrintBegin) {
        statements.push_back(make(Statement::kPrint, token.line));
        statements.back().expression = expressions_.tuple();
        reader_.expect(Token::kPrintEnd);
      } else {
        if (sees_end(ends)) {
          --depth_;
          return statements;
        }
        statements.push_back(statement());
        reader_.expect(Token::kTagEnd);
      }
    }
    if (ends.size() > 0) {
      reader_.fail_here(fmt::format("the template ends before a tag '{}'", *(ends.end() - 1)));
    }
    --depth_;
    return statements;
  }

  /// Behind a tag that begins a block.
  Block body(std::initializer_list<std::string_view> ends) {
    reader_.skip(":");
    reader_.expect(Token::kTagEnd);
    return block(ends);
  }

  static Statement make(Statement::Kind kind, int line) {
    Statement statement;
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  Statement statement() {
    const int line = reader_.now().line;
    const std::string tag = reader_.take_name("a tag's name");
    if (tag == "if") return if_tag(line);
    if (tag == "for") return for_tag(line);
    if (tag == "set") return set_tag(line);
    if (tag == "macro") return macro_tag(line);
    const bool is_addition = tag == "generation" || tag == "break" || tag == "continue";
    if (is_addition && !options_.transformers) {
      throw SourceFailure(line, fmt::format("the tag '{}' belongs to chat templates", tag));
    }
    if (tag == "generation") return generation_tag(line);
    if (tag == "break" || tag == "continue") {
      if (loop_depth_ == 0) throw SourceFailure(line, fmt::format("'{}' outside of a loop", tag));
      return make(tag == "break" ? Statement::kBreak : Statement::kContinue, line);
    }
    throw SourceFailure(line, fmt::format("the tag '{}' is not supported here", tag));
  }

  void else_block(Statement& statement, const char* end) {
    statement.blocks.push_back(body({end}));
    reader_.take();
  }

  Statement if_tag(int line) {
    Statement statement = make(Statement::kIf, line);
    std::string tag = "elif";
    while (tag == "elif") {
      statement.conditions.push_back(expressions_.tuple(false));
      statement.blocks.push_back(body({"elif", "else", "endif"}));
      tag = reader_.take().text;
    }
    if (tag == "else") else_block(statement, "endif");
    return statement;
  }

  Statement for_tag(int line) {
    Statement statement = make(Statement::kFor, line);
    statement.target = target_list("in");
    if (has_attribute(statement.target)) reader_.fail_here("a loop assigns names only");
    reader_.expect_name("in");
    statement.expression = expressions_.tuple(false, "recursive");
    statement.conditions.push_back(reader_.skip_name("if") ? expressions_.expression() : nullptr);
    if (reader_.sees_name("recursive")) reader_.fail_here("recursive loops are not supported");
    ++loop_depth_;
    statement.blocks.push_back(body({"else", "endfor"}));
    --loop_depth_;
    if (reader_.take().text == "else") else_block(statement, "endfor");
    return statement;
  }

  Statement set_tag(int line) {
    Statement statement = make(Statement::kSet, line);
    statement.target = target_list("");
    if (reader_.skip("=")) {
      statement.expression = expressions_.tuple();
      return statement;
    }
    statement.kind = Statement::kSetBlock;
    statement.expression = expressions_.filters(nullptr);
    statement.blocks.push_back(separate({"endset"}));
    return statement;
  }

  Statement macro_tag(int line) {
    Statement statement = make(Statement::kMacro, line);
    statement.text = target_name();
    reader_.expect("(");
    while (!reader_.skip(")")) {
      if (!statement.parameters.empty()) reader_.expect(",");
      Parameter parameter{target_name(), nullptr};
      for (const Parameter& other : statement.parameters) {
        if (other.name == parameter.name) reader_.fail_here("a macro's argument is named twice");
      }
      if (reader_.skip("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (!statement.parameters.empty() && statement.parameters.back().otherwise) {
        reader_.fail_here("an argument without default follows one with a default");
      }
      statement.parameters.push_back(std::move(parameter));
    }
    ++expressions_.macro_depth;
    statement.blocks.push_back(separate({"endmacro"}));
    --expressions_.macro_depth;
    return statement;
  }

  Statement generation_tag(int line) {
    Statement statement = make(Statement::kGeneration, line);
    statement.blocks.push_back(separate({"endgeneration"}));
    return statement;
  }

  /// A body that no loop around it can be left from; takes its end tag's name.
  Block separate(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loop_depth_, 0);
    Block statements = body(ends);
    loop_depth_ = loops;
    reader_.take();
    return statements;
  }

  std::string target_name() {
    const std::string name = reader_.take_name("a name");
    for (const std::string_view taken :
         {"true", "True", "false", "False", "none", "None", "loop"}) {
      if (name == taken) reader_.fail_here(fmt::format("'{}' cannot be assigned", name));
    }
    return name;
  }

  Target single_target() {
    if (reader_.skip("(")) {
      Target target = target_list("");
      reader_.expect(")");
      return target;
    }
    Target target;
    target.name = target_name();
    if (reader_.skip(".")) {
      target.kind = Target::kAttribute;
      target.attribute = reader_.take_name("an attribute");
    }
    return target;
  }

  static bool has_attribute(const Target& target) {
    return target.kind == Target::kAttribute || std::ranges::any_of(target.parts, has_attribute);
  }

  Target target_list(std::string_view end_name) {
    if (++depth_ > kMaxBlocks) reader_.fail_here("the tags lie too deep in each other");
    Target first = single_target();
    --depth_;
    if (!reader_.sees(",")) return first;
    Target tuple;
    tuple.kind = Target::kTuple;
    tuple.parts.push_back(std::move(first));
    while (reader_.skip(",")) {
      if (reader_.sees("=") || reader_.sees(")") ||
          (!end_name.empty() && reader_.sees_name(end_name))) {
        break;
      }
      tuple.parts.push_back(single_target());
    }
    return tuple;
  }

  const JinjaOptions& options_;
  TokenReader reader_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Block parse(const std::vector<Token>& tokens, const JinjaOptions& options) {
  return Parser(tokens, options).run();
}

}  // namespace atl::text::jinja
