#pragma once
// JSON schemas (draft 2020-12, and what older drafts called otherwise) as rules of a grammar for
// JSON texts. What cannot be kept to the letter is refused with keyword and place, never passed
// over. docs/structured_output.md says what is supported.
//
// Properties come in the schema's order; those that it does not list, at the end.
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "atoll/grammar/grammar.h"

namespace atl::grammar {

/// Blanks between the parts of a JSON text.
enum class Blanks : uint8_t {
  kNone,
  kBounded,  // A space, or a line end and up to 40 blanks: a model cannot go on with them for ever.
};

struct SchemaOptions {
  Blanks blanks = Blanks::kBounded;
  GrammarLimits limits;
};

/// The texts of values that are right by the schema, a JSON text. Throws InputError.
std::shared_ptr<const Grammar> schema_grammar(std::string_view schema,
                                              const SchemaOptions& options = {});
/// Any JSON object.
std::shared_ptr<const Grammar> object_grammar(const SchemaOptions& options = {});
/// One of these texts as it is, no JSON. Throws InputError where there is none, or one is empty.
std::shared_ptr<const Grammar> choice_grammar(std::span<const std::string> texts,
                                              const GrammarLimits& limits = {});

}  // namespace atl::grammar
