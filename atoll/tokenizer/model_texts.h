#pragma once
// What a model's folder says, beside weights, config.json and tokenizer.json, of its tokenizer, its
// chats and how it generates. Whoever writes the model again keeps all of it.
#include <filesystem>
#include <map>
#include <string>

namespace atl::tokenizer {

/// Contents by name within the folder ("chat_template.jinja",
/// "additional_chat_templates/tool_use.jinja"); of a GGUF file what it has in their place. Throws
/// InputError where one cannot be read.
std::map<std::string, std::string> model_texts(const std::filesystem::path& model);

}  // namespace atl::tokenizer
