// Requests from strangers: they are read, or refused with a field's name in OpenAI's form.
#include <cstdint>
#include <iterator>
#include <string>

#include "atoll/base/check.h"
#include "atoll/openai/chat.h"
#include "atoll/openai/completion.h"
#include "atoll/openai/embedding.h"
#include "atoll/openai/response.h"

namespace {

using atl::openai::Json;

constexpr const char* kGood[] = {
    R"({"model": "m", "prompt": [[1, 2], [3]], "n": 2, "stop": ["a", "b"], "seed": -1,
        "logit_bias": {"1": -2.5}, "stream": true, "stream_options": {"include_usage": true},
        "logprobs": 2})",
    R"({"model": "m", "messages": [{"role": "user",
        "content": [{"type": "text", "text": "\ud83d"}]}], "max_completion_tokens": 3,
        "logprobs": true, "top_logprobs": 2, "top_k": -1})",
    R"({"model": "m", "input": [{"type": "message", "role": "user", "content": "x"}],
        "include": ["message.output_text.logprobs"], "text": {"format": {"type": "text"}}})",
    R"({"model": "m", "input": ["a", "b"], "encoding_format": "base64"})",
    R"({"model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "assistant",
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}}})",
    R"({"model": "m", "input": [{"type": "function_call", "call_id": "1", "name": "f",
        "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "x"}],
        "tools": [{"type": "function", "name": "f"}], "tool_choice": "required"})"};

void read(const std::string& body) {
  const atl::openai::RequestLimits limits;
  for (int kind = 0; kind < 4; ++kind) {
    try {
      const Json json = atl::openai::parse_body(body);
      if (kind == 0) atl::openai::read_completion(json, limits);
      if (kind == 1) atl::openai::read_chat(json, limits);
      if (kind == 2) atl::openai::read_response(json, limits);
      if (kind == 3) atl::openai::read_embedding(json, limits);
    } catch (const atl::openai::ApiError& error) {
      ATOLL_CHECK(error.status == 400);
      ATOLL_CHECK(!atl::openai::dump(json_of(error)).empty());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  read(input);
  std::string edited = kGood[size == 0 ? 0 : data[0] % std::size(kGood)];
  for (size_t i = 1; i + 4 <= size && i < 16; i += 4) {
    const size_t at = (data[i] * 256U + data[i + 1]) % (edited.size() + 1);
    edited.replace(at, data[i + 2] % 6, input.substr(i, data[i + 3] % 4));
  }
  read(edited);
  return 0;
}
