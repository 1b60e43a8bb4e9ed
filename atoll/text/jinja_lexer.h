#pragma once
// A template's source cut into text and the tokens of its tags, white space control done. Internal.
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/jinja_value.h"

namespace atl::text::jinja {

struct Token {
  enum Kind {
    kText,
    kName,
    kString,
    kNumber,
    kOperator,
    kTagBegin,
    kTagEnd,
    kPrintBegin,
    kPrintEnd,
    kEnd
  };
  Kind kind = kEnd;
  std::string text;  // Names and operators as written, strings without quotes and escapes.
  Value number;      // kNumber's.
  int line = 1;

  bool is(Kind wanted, std::string_view what) const { return kind == wanted && text == what; }
};

/// What is wrong in a template's source, and where.
struct SourceFailure : Failure {
  SourceFailure(int at, const std::string& what) : Failure(what), line(at) {}
  int line;
};

std::vector<Token> tokenize(std::string_view source, const JinjaOptions& options);

}  // namespace atl::text::jinja
