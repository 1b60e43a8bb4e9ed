#include "atoll/tasks/requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/text/python_text.h"

namespace atl::tasks {

RequestEncoder::RequestEncoder(const tokenizer::Tokenizer& tokenizer, int64_t prefix,
                               int64_t max_length)
    : tokenizer_(tokenizer),
      encoder_(tokenizer),
      prefix_(prefix),
      prefix_text_(tokenizer.token_bytes(static_cast<tokenizer::TokenId>(prefix))),
      max_length_(static_cast<size_t>(max_length)) {
  ATOLL_CHECK(max_length > 0);
}

std::vector<int64_t> RequestEncoder::plain_ids_of(std::string_view text) {
  std::vector<tokenizer::TokenId> ids;
  encoder_.encode(text, tokenizer::SpecialText::kToken, ids);
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> RequestEncoder::ids_of(std::string_view text) {
  if (text.starts_with(prefix_text_)) return plain_ids_of(text);
  std::vector<tokenizer::TokenId> ids;
  encoder_.encode(text, tokenizer::SpecialText::kToken, ids);
  ids = tokenizer_.with_special_tokens(std::move(ids));
  return {ids.begin(), ids.end()};
}

TokenRequest RequestEncoder::encode(std::string_view context, std::string_view continuation) {
  TokenRequest request;
  if (context.empty()) {
    request.continuation = plain_ids_of(continuation);
    request.context = {prefix_};
    if (!request.continuation.empty() && request.continuation.front() == prefix_) {
      request.continuation.erase(request.continuation.begin());
    }
  } else {
    const std::string_view stem = text::strip(context, text::Side::kRight);
    const std::string whole = std::string(context) + std::string(continuation);
    request.context = ids_of(stem);
    const std::vector<int64_t> all = ids_of(whole);
    const size_t begin = std::min(request.context.size(), all.size());
    request.continuation.assign(all.begin() + static_cast<ptrdiff_t>(begin), all.end());
    if (request.context.empty())
      throw InputError("nothing but white space stands before an answer");
  }
  if (request.continuation.empty()) throw InputError("an answer has no tokens");
  if (request.continuation.size() > max_length_) {
    throw InputError(fmt::format("an answer has {} tokens, and the model reads {} at a time",
                                 request.continuation.size(), max_length_));
  }
  // The last token is only predicted, so one more than the model reads may stay.
  const size_t size = request.context.size() + request.continuation.size();
  if (size > max_length_ + 1) {
    const auto excess = static_cast<ptrdiff_t>(size - max_length_ - 1);
    request.context.erase(request.context.begin(), request.context.begin() + excess);
  }
  return request;
}

std::vector<TokenRequest> RequestEncoder::encode_rolling(std::string_view text) {
  return rolling_windows(ids_of(text), prefix_, static_cast<int64_t>(max_length_));
}

std::vector<TokenRequest> rolling_windows(const std::vector<int64_t>& ids, int64_t prefix,
                                          int64_t max_length) {
  std::vector<TokenRequest> windows;
  const auto count = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin < count; begin += max_length) {
    const int64_t end = std::min(begin + max_length, count);
    TokenRequest window;
    window.continuation.assign(ids.begin() + begin, ids.begin() + end);
    if (begin == 0) {
      window.context = {prefix};
    } else {
      window.context.assign(ids.begin() + (end - max_length - 1), ids.begin() + begin);
    }
    windows.push_back(std::move(window));
  }
  return windows;
}

}  // namespace atl::tasks
