// Spaces, and the mark U+2581 that SentencePiece-style vocabularies write for them.
#include "atoll/text/python_text.h"
#include "atoll/tokenizer/tokenizer_tables.h"

namespace atl::tokenizer {
namespace {

/// Spaces for marks, behind `prefix`; `text` itself when that changes nothing.
std::string_view rewrite(std::string_view prefix, std::string_view text, std::string& scratch) {
  if (prefix.empty() && text.find(kMark) == std::string_view::npos) return text;
  scratch = prefix;
  scratch += text::replace_text(text, kMark, " ", -1);
  return scratch;
}

}  // namespace

std::string_view Marks::apply(std::string_view text, std::string& scratch) const {
  if (!are_used) return text;
  return rewrite(prepends && !text.empty() ? " " : "", text, scratch);
}

std::string_view Metaspace::apply(std::string_view text, bool is_first,
                                  std::string& scratch) const {
  const bool begins_with_mark = text.starts_with(' ') || text.starts_with(kMark);
  const bool prepended = !begins_with_mark && (prefix == PrefixScheme::kAlways ||
                                               (prefix == PrefixScheme::kFirst && is_first));
  return rewrite(prepended ? " " : "", text, scratch);
}

}  // namespace atl::tokenizer
