#pragma once
// A model's chat template: messages to the text that the model was trained to see, as transformers'
// apply_chat_template gives it. Never changes after loading; may be shared by threads.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/text/jinja.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

/// A conversation as files and requests hold it.
struct Chat {
  /// A list of messages {"role", "content", ...}, or an object with the list "messages", perhaps
  /// "tools", "documents" and "add_generation_prompt", and anything else that the template knows
  /// ("enable_thinking"). `where` begins messages. Throws InputError.
  static Chat from_json(const nlohmann::ordered_json& json, const std::string& where);

  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;      // Null: none.
  nlohmann::ordered_json documents;  // Null: none.
  bool add_generation_prompt = false;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();
};

/// The special tokens that a model's folder or file names: "eos_token" and so on, and their texts.
nlohmann::ordered_json special_tokens_of(const std::filesystem::path& model);

/// A template, and where it stands, for messages.
struct TemplateSource {
  std::string text;
  std::string where;
};
/// Those of a folder or file: "default", "tool_use".
std::map<std::string, TemplateSource> template_sources_of(const std::filesystem::path& model);

class ChatTemplate {
 public:
  /// What the folder of a tokenizer holds: chat_template.jinja, or else "chat_template" in
  /// tokenizer_config.json. Of several named ones "tool_use" serves chats with tools, "default" the
  /// others. None where there is no template. Throws InputError at files that are damaged.
  static std::optional<ChatTemplate> load(const std::filesystem::path& folder);
  /// The folder's special tokens with a template from elsewhere: a file, or a name of built_in().
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& name_or_file);
  /// The second where there is a name, else the first; throws InputError where the folder has none.
  static ChatTemplate find(const std::filesystem::path& folder, const std::string& name_or_file);
  /// Where the template of what a tokenizer is loaded from lies: its folder, a GGUF file, or the
  /// folder of its file.
  static std::filesystem::path place_beside(const std::filesystem::path& tokenizer);
  /// find() there.
  static ChatTemplate beside(const std::filesystem::path& tokenizer,
                             const std::string& name_or_file);
  /// Templates for models that bring none: "chatml", "llama3", "plain". Empty: none of that name.
  static std::string_view built_in(std::string_view name);

  /// The tokenizer's end-of-sequence token, which ends a turn; empty where the folder names none.
  std::string end_of_turn() const;
  /// What serves chats with tools, as its author wrote it.
  const std::string& source() const { return source_; }
  /// The text. Throws InputError, also where the template itself refuses the chat.
  std::string render(const Chat& chat) const;
  /// Its ids: special tokens in the text count as such, none is added.
  static std::vector<TokenId> encode(const Tokenizer& tokenizer, const std::string& text);

 private:
  ChatTemplate(TemplateSource source, nlohmann::ordered_json special_tokens);

  text::JinjaTemplate plain_;
  std::optional<text::JinjaTemplate> with_tools_;  // Where the folder has one of its own for them.
  std::string source_;
  nlohmann::ordered_json special_tokens_;
};

}  // namespace atl::tokenizer
