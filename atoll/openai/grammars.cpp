#include "atoll/openai/grammars.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/json_schema.h"
#include "atoll/grammar/matcher.h"

namespace atl::openai {
namespace {

using Kind = Structure::Kind;

/// Different where grammars are.
std::string key_of(const Structure& structure, grammar::ToolForm form) {
  std::string key =
      fmt::format("{} {} {} {}", static_cast<int>(structure.kind), static_cast<int>(form),
                  static_cast<int>(structure.tool_choice), structure.is_parallel);
  const auto add = [&](const std::string& part) {
    key += fmt::format(" {}:{}", part.size(), part);
  };
  add(structure.schema);
  for (const std::string& choice : structure.choices) add(choice);
  for (const grammar::Tool& tool : structure.tools) {
    add(tool.name);
    add(tool.parameters);
  }
  return key;
}

std::shared_ptr<const grammar::Grammar> grammar_of(const Structure& structure,
                                                   grammar::ToolForm form) {
  switch (structure.kind) {
    case Kind::kText:
      return nullptr;
    case Kind::kObject:
      return grammar::object_grammar();
    case Kind::kSchema:
      return grammar::schema_grammar(structure.schema);
    case Kind::kChoice:
      return grammar::choice_grammar(structure.choices);
    case Kind::kTools:
      return grammar::tool_grammar(structure.tools, {.form = form,
                                                     .choice = structure.tool_choice,
                                                     .is_parallel = structure.is_parallel,
                                                     .schema = {}});
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> Grammars::vocabulary() {
  if (vocabulary_ != nullptr) return vocabulary_;
  std::vector<std::string> bytes(static_cast<size_t>(vocab_size_));
  for (int64_t id = 0; id < vocab_size_; ++id) {
    bytes[static_cast<size_t>(id)] = tokenizer_->bytes_or_none(id);
  }
  // Special tokens are no text, but for those that calls of tools are written with.
  const std::set<std::string_view> marks{"<tool_call>", "</tool_call>", "[TOOL_CALLS]"};
  for (const tokenizer::TokenId id : tokenizer_->special_ids()) {
    if (id < vocab_size_ && !marks.contains(bytes[static_cast<size_t>(id)])) {
      bytes[static_cast<size_t>(id)].clear();
    }
  }
  std::vector<grammar::TokenId> ends;
  for (const int64_t id : ends_) ends.push_back(static_cast<grammar::TokenId>(id));
  vocabulary_ = std::make_shared<grammar::Vocabulary>(bytes, std::move(ends));
  return vocabulary_;
}

Grammars::Masks Grammars::look_up(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(kept_, key, &Kept::key);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->masks;
}

void Grammars::keep(const std::string& key, const Masks& masks) {
  const MutexLock lock(mutex_);
  kept_.push_front({key, masks});
  size_t num_forms = 0;
  size_t num_bytes = 0;  // What masks keep grows: all are counted anew.
  std::erase_if(kept_, [&](const Kept& kept) {
    num_bytes += kept.key.size() + kept.masks->num_bytes();
    return ++num_forms > kMaxForms || (num_forms > 1 && num_bytes > kMaxBytes);
  });
}

Grammars::Masks Grammars::make(const Structure& structure, grammar::ToolForm form) {
  try {
    auto masks = std::make_shared<grammar::TokenMasks>(grammar_of(structure, form), vocabulary());
    if (grammar::Matcher(masks).mask().count() == 0) {
      throw InputError("no token of the model's vocabulary begins such an answer");
    }
    return masks;
  } catch (const InputError& error) {
    refuse(structure.field, fmt::format("'{}': {}", structure.field, error.what()),
           "invalid_schema");
  }
}

Grammars::Masks Grammars::find(const Structure& structure, grammar::ToolForm form) {
  if (structure.kind == Kind::kText) return nullptr;
  const std::string key = key_of(structure, form);
  if (Masks known = look_up(key)) return known;
  const MutexLock lock(making_);
  if (Masks known = look_up(key)) return known;  // Another made it meanwhile.
  Masks made = make(structure, form);
  keep(key, made);
  return made;
}

}  // namespace atl::openai
