#include "atoll/openai/api_error.h"

namespace atl::openai {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

constexpr Duration kUnavailable =
    std::chrono::seconds(10);  // Servers come back, and load their layers.

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

void refuse(const std::string& param, const std::string& message, const std::string& code) {
  throw ApiError(400, param, message, code);
}

ApiError error_of(const decoding::Refusal& refusal) {
  using Kind = decoding::Refusal::Kind;
  switch (refusal.kind) {
    case Kind::kInvalid:
      return {400, "", refusal.message};
    case Kind::kBusy: {
      ApiError error(429, "", refusal.message, "busy");
      error.retry_after = refusal.retry_after;
      return error;
    }
    case Kind::kUnavailable:
      break;
  }
  ApiError error(503, "", refusal.message, "unavailable");
  error.retry_after = kUnavailable;
  return error;
}

Json json_of(const ApiError& error) {
  return {{"error",
           {{"message", error.what()},
            {"type", type_of(error.status)},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

}  // namespace atl::openai
