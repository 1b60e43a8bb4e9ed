#include "atoll/tokenizer/chat_template.h"

#include <fmt/format.h>

#include <map>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/codec/gguf_file.h"
#include "atoll/text/json_text.h"

namespace atl::tokenizer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kChatml = R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})";

constexpr std::string_view kLlama3 = R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

// For models that were never taught to chat.
constexpr std::string_view kPlain = R"({%- for message in messages %}
{{- message.role | capitalize + ': ' + message.content + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- 'Assistant:' }}
{%- endif %})";

/// For messages: a model that is a file has its texts in it.
fs::path place_of(const fs::path& model, const char* name) {
  return fs::is_regular_file(model) ? model : model / name;
}

Json read_config(const fs::path& model, const char* name) {
  const auto text = tokenizer_text(model, name);
  if (!text) return Json::object();
  const std::string where = "'" + place_of(model, name).string() + "'";
  Json json = text::parse_json<Json>(*text, where);
  if (!json.is_object()) throw InputError(where + ": not an object");
  return json;
}

/// bos_token and so on, as text or as {"content": text}.
void add_special_tokens(const Json& config, const fs::path& file, Json& tokens) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (tokens.contains(name) || !config.contains(name) || config[name].is_null()) continue;
    const Json& entry = config[name];
    const Json& text = entry.is_object() && entry.contains("content") ? entry["content"] : entry;
    if (!text.is_string()) {
      throw InputError(fmt::format("'{}': \"{}\" is not a token", file.string(), name));
    }
    tokens[name] = text;
  }
}

/// As transformers prepares a message: keys without a value go; what the model thought is there
/// under each of the names that templates know.
Json prepared(const Json& given) {
  Json message = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null()) message[key] = value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!message.contains(name)) continue;
    Json result{{"thinking", message[name]}};
    for (const auto& [key, value] : message.items()) result[key] = value;
    result["reasoning_content"] = message[name];
    return result;
  }
  return message;
}

}  // namespace

Json special_tokens_of(const fs::path& folder) {
  Json tokens = Json::object();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    add_special_tokens(read_config(folder, name), place_of(folder, name), tokens);
  }
  return tokens;
}

std::map<std::string, TemplateSource> template_sources_of(const fs::path& folder) {
  std::map<std::string, TemplateSource> sources;
  const fs::path file = folder / "chat_template.jinja";
  if (fs::exists(file)) {
    sources["default"] = {read_file(file), "'" + file.string() + "'"};
    const fs::path more = folder / "additional_chat_templates" / "tool_use.jinja";
    if (fs::exists(more)) sources["tool_use"] = {read_file(more), "'" + more.string() + "'"};
    return sources;
  }
  const fs::path config = place_of(folder, "tokenizer_config.json");
  const Json entry = read_config(folder, "tokenizer_config.json").value("chat_template", Json());
  const std::string where = "'" + config.string() + "': chat_template";
  if (entry.is_string()) sources["default"] = {entry.get<std::string>(), where};
  if (entry.is_null() || entry.is_string()) return sources;
  if (!entry.is_array()) throw InputError(where + " is neither a text nor a list");
  for (const Json& each : entry) {
    const bool is_named = each.is_object() && each.contains("name") && each["name"].is_string() &&
                          each.contains("template") && each["template"].is_string();
    if (!is_named) throw InputError(where + ": an entry lacks \"name\" or \"template\"");
    const auto name = each["name"].get<std::string>();
    if (name != "default" && name != "tool_use") continue;  // Asked for by name only.
    sources[name] = {each["template"].get<std::string>(), where + " '" + name + "'"};
  }
  if (!sources.contains("default")) throw InputError(where + " has none named \"default\"");
  return sources;
}

Chat Chat::from_json(const Json& json, const std::string& where) {
  Chat chat;
  chat.messages = json.is_object() ? json.value("messages", Json()) : json;
  if (!chat.messages.is_array()) {
    throw InputError(where + ": neither a list of messages nor an object with \"messages\"");
  }
  if (chat.messages.empty()) throw InputError(where + ": there is no message");
  for (const Json& message : chat.messages) {
    if (!message.is_object() || !message.contains("role")) {
      throw InputError(where + ": a message is no object with \"role\"");
    }
  }
  if (!json.is_object()) return chat;
  for (const auto& [key, value] : json.items()) {
    if (key == "messages") continue;
    if (key == "tools" || key == "documents") {
      if (!value.is_array() && !value.is_null())
        throw InputError(where + ": " + key + " is no list");
      (key == "tools" ? chat.tools : chat.documents) = value;
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean())
        throw InputError(where + ": add_generation_prompt is not true or false");
      chat.add_generation_prompt = value.get<bool>();
    } else {
      chat.more[key] = value;
    }
  }
  return chat;
}

ChatTemplate::ChatTemplate(TemplateSource source, Json special_tokens)
    : plain_(source.text, text::kChatTemplate, source.where),
      source_(std::move(source.text)),
      special_tokens_(std::move(special_tokens)) {}

std::optional<ChatTemplate> ChatTemplate::load(const fs::path& folder) {
  const auto sources = template_sources_of(folder);
  if (sources.empty()) return {};
  ChatTemplate loaded(sources.at("default"), special_tokens_of(folder));
  if (const auto found = sources.find("tool_use"); found != sources.end()) {
    loaded.with_tools_.emplace(found->second.text, text::kChatTemplate, found->second.where);
    loaded.source_ = found->second.text;
  }
  return loaded;
}

ChatTemplate ChatTemplate::load(const fs::path& folder, const std::string& name_or_file) {
  const std::string_view known = built_in(name_or_file);
  return {{.text = known.empty() ? read_file(name_or_file) : std::string(known),
           .where = "'" + name_or_file + "'"},
          special_tokens_of(folder)};
}

ChatTemplate ChatTemplate::find(const fs::path& folder, const std::string& name_or_file) {
  if (!name_or_file.empty()) return load(folder, name_or_file);
  auto found = load(folder);
  if (found) return std::move(*found);
  throw InputError(
      fmt::format("'{}' has no chat template (chat_template.jinja, or \"chat_template\" in "
                  "tokenizer_config.json): name one with --template (a file, chatml, llama3, "
                  "plain); 'atoll generate' needs none",
                  folder.string()));
}

fs::path ChatTemplate::place_beside(const fs::path& tokenizer) {
  const bool is_model = fs::is_directory(tokenizer) || codec::GgufFile::is_one(tokenizer);
  return is_model ? tokenizer : tokenizer.parent_path();
}

ChatTemplate ChatTemplate::beside(const fs::path& tokenizer, const std::string& name_or_file) {
  return find(place_beside(tokenizer), name_or_file);
}

std::string_view ChatTemplate::built_in(std::string_view name) {
  if (name == "chatml") return kChatml;
  if (name == "llama3") return kLlama3;
  if (name == "plain") return kPlain;
  return {};
}

std::string ChatTemplate::end_of_turn() const { return special_tokens_.value("eos_token", ""); }

std::string ChatTemplate::render(const Chat& chat) const {
  Json variables = special_tokens_;
  for (const auto& [key, value] : chat.more.items()) variables[key] = value;
  Json messages = Json::array();
  for (const Json& message : chat.messages) messages.push_back(prepared(message));
  variables["messages"] = std::move(messages);
  variables["tools"] = chat.tools;
  variables["documents"] = chat.documents;
  variables["add_generation_prompt"] = chat.add_generation_prompt;
  const bool has_tools = with_tools_ && !chat.tools.is_null();
  return (has_tools ? *with_tools_ : plain_).render(variables);
}

std::vector<TokenId> ChatTemplate::encode(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, SpecialText::kToken);
}

}  // namespace atl::tokenizer
