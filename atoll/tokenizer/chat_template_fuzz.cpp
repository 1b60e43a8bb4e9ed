// tokenizer_config.json and conversations from strangers: they render, or are refused.
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "atoll/base/error.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/text/json_text.h"
#include "atoll/tokenizer/chat_template.h"

namespace {

void try_chat(const std::filesystem::path& folder, const std::string& config,
              const std::string& chat) {
  std::ofstream(folder / "tokenizer_config.json", std::ios::binary) << config;
  try {
    const auto found = atl::tokenizer::ChatTemplate::load(folder);
    const auto json = atl::text::parse_json<nlohmann::ordered_json>(chat, "chat");
    const auto read = atl::tokenizer::Chat::from_json(json, "chat");
    if (found) found->render(read);
  } catch (const atl::InputError&) {  // Refused, as it should be.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const atl::TestFolder folder;
  const std::string good_config =
      R"({"bos_token": {"content": "<s>"}, "chat_template": "{{ bos_token }}{{ messages }}"})";
  const std::string good_chat =
      R"({"messages": [{"role": "user", "content": "Hi", "reasoning": "x"}], "tools": [], "x": 1})";
  std::string edited_config = good_config;
  std::string edited_chat = good_chat;
  for (size_t i = 0; i + 4 <= size && i < 16; i += 4) {
    std::string& edited = data[i] % 2 == 0 ? edited_config : edited_chat;
    const size_t at = data[i + 1] % (edited.size() + 1);
    edited.replace(at, data[i + 2] % 8, reinterpret_cast<const char*>(data + i), data[i + 3] % 5);
  }
  try_chat(folder, edited_config, good_chat);
  try_chat(folder, good_config, edited_chat);
  return 0;
}
