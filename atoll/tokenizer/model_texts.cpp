#include "atoll/tokenizer/model_texts.h"

#include "atoll/base/file.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {
namespace {

namespace fs = std::filesystem;

/// Vocabularies in other spellings among them: transformers reads some beside tokenizer.json.
constexpr const char* kNames[] = {
    "added_tokens.json", "chat_template.jinja",     "chat_template.json", "generation_config.json",
    "merges.txt",        "special_tokens_map.json", "tokenizer.model",    "tokenizer_config.json",
    "vocab.json"};

/// Templates beside chat_template.jinja, each in a file of its name.
constexpr const char* kMoreTemplates = "additional_chat_templates";

}  // namespace

std::map<std::string, std::string> model_texts(const fs::path& model) {
  std::map<std::string, std::string> texts;
  for (const char* name : kNames) {
    if (auto text = tokenizer_text(model, name)) texts[name] = std::move(*text);
  }
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(model / kMoreTemplates, none)) {
    const fs::path& file = entry.path();
    if (file.extension() != ".jinja" || !entry.is_regular_file()) continue;
    texts[(kMoreTemplates / file.filename()).generic_string()] = read_file(file);
  }
  return texts;
}

}  // namespace atl::tokenizer
