// Texts that models made, read for calls: never fails, and what it reads is within the text.
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/grammar/tool_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kPieces[] = {"<tool_call>",
                                          "</tool_call>",
                                          "[TOOL_CALLS]",
                                          "\n",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "\"name\": ",
                                          "\"a\"",
                                          ", ",
                                          "\"arguments\": ",
                                          "\"parameters\": ",
                                          "{}",
                                          "; ",
                                          "\\",
                                          "\"",
                                          "text",
                                          "<tool_",
                                          "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"};
  std::string text;
  for (size_t i = 0; i < size && i < 64; ++i) text += kPieces[data[i] % std::size(kPieces)];
  using atl::grammar::ToolForm;
  for (const std::string& said : {std::string(reinterpret_cast<const char*>(data), size), text}) {
    for (const ToolForm form : {ToolForm::kHermes, ToolForm::kLlama3, ToolForm::kMistral}) {
      const auto answer = atl::grammar::read_tool_answer(said, form);
      size_t size_of_calls = 0;
      for (const auto& call : answer.calls) size_of_calls += call.arguments.size();
      ATOLL_CHECK(answer.text.size() + size_of_calls <= said.size());
    }
  }
  return 0;
}
