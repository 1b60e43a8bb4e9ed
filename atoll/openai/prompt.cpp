#include "atoll/openai/prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/openai/request_options.h"

namespace atl::openai {
namespace {

bool all_are(const Json& list, bool (Json::*is)() const noexcept) {
  return std::ranges::all_of(list, [&](const Json& one) { return (one.*is)(); });
}

PromptIds encode_text(const std::string& text, const tokenizer::Tokenizer& tokenizer) {
  // A prompt's author may write special tokens: the model is his to ask.
  const auto plain = tokenizer.encode(text, tokenizer::SpecialText::kToken);
  const auto all = tokenizer.with_special_tokens(plain);
  PromptIds found{.ids = {all.begin(), all.end()}, .text = text};
  if (plain.empty()) {
    found.num_leading = all.size();
    return found;
  }
  const auto begin = std::ranges::search(all, plain).begin();
  found.num_leading = static_cast<size_t>(begin - all.begin());
  found.num_trailing = all.size() - found.num_leading - plain.size();
  return found;
}

PromptIds encode_ids(const std::vector<int64_t>& ids, const tokenizer::Tokenizer& tokenizer,
                     int64_t vocab_size, const std::string& field) {
  for (const int64_t id : ids) {
    if (id >= vocab_size) {
      refuse(field, fmt::format("'{}' has the id {}; the model's ids are below {}", field, id,
                                vocab_size));
    }
  }
  PromptIds found{.ids = ids};
  for (const int64_t id : ids) found.text += tokenizer.bytes_or_none(id);
  return found;
}

}  // namespace

std::vector<Prompt> read_prompts(const Json& json, const std::string& field, int64_t most) {
  if (json.is_string()) return {json.get<std::string>()};
  if (!json.is_array() || json.empty()) {
    refuse(field, fmt::format("'{}' must be a text, a list of texts, a list of ids or a list of "
                              "lists of ids, and not empty",
                              field));
  }
  if (json[0].is_number()) return {read_ids(json, field)};
  if (std::ssize(json) > most) {
    refuse(field, fmt::format("'{}' has {} texts; {} are the most", field, json.size(), most));
  }
  std::vector<Prompt> prompts;
  if (all_are(json, &Json::is_string)) {
    for (const Json& one : json) prompts.emplace_back(one.get<std::string>());
  } else if (all_are(json, &Json::is_array)) {
    for (const Json& one : json) prompts.emplace_back(read_ids(one, field));
  } else {
    refuse(field, fmt::format("'{}' must not mix texts and ids", field));
  }
  return prompts;
}

PromptIds encode(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer, int64_t vocab_size,
                 const std::vector<int64_t>& begin, const std::string& field) {
  const auto* text = std::get_if<std::string>(&prompt);
  PromptIds found = text != nullptr ? encode_text(*text, tokenizer)
                                    : encode_ids(std::get<std::vector<int64_t>>(prompt), tokenizer,
                                                 vocab_size, field);
  if (found.ids.empty() && !begin.empty()) {
    found.ids.push_back(begin[0]);
    found.num_leading = 1;
  }
  if (found.ids.empty()) {
    refuse(field, fmt::format("'{}' is empty, and this model has no token to begin with", field));
  }
  return found;
}

std::vector<std::string> bytes_of_ids(const PromptIds& prompt,
                                      const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::string> all;
  const size_t end = prompt.ids.size() - prompt.num_trailing;
  size_t sum = 0;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    const bool is_text = i >= prompt.num_leading && i < end;
    all.emplace_back(is_text ? tokenizer.bytes_or_none(prompt.ids[i]) : "");
    sum += all.back().size();
  }
  // The space that some tokenizers put before a text is none of the text's.
  if (sum == prompt.text.size() + 1 && !prompt.text.starts_with(' ') &&
      all[prompt.num_leading].starts_with(' ')) {
    all[prompt.num_leading].erase(0, 1);
  }
  return all;
}

}  // namespace atl::openai
