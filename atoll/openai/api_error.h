#pragma once
// What a request is refused with, as OpenAI's clients read it: an exception to the edge of the API.
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/decoding/generator.h"

namespace atl::openai {

using Json = nlohmann::ordered_json;

struct ApiError : std::runtime_error {
  ApiError(int status_, std::string param_, const std::string& message, std::string code_ = "")
      : std::runtime_error(message),
        status(status_),
        param(std::move(param_)),
        code(std::move(code_)) {}

  int status;
  std::string param;  // The field that is wrong; empty: none in particular.
  std::string code;   // For programs: "model_not_found"; empty: none.
  Duration retry_after{};
};

/// 400: `param` cannot be used, for that reason.
[[noreturn]] void refuse(const std::string& param, const std::string& message,
                         const std::string& code = "");
ApiError error_of(const decoding::Refusal& refusal);

/// {"error": {"message", "type", "param", "code"}}.
Json json_of(const ApiError& error);

}  // namespace atl::openai
