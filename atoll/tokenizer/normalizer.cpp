#include "atoll/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/python_text.h"
#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {
namespace {

/// Honest steps make a text a few times as long.
void check_growth(size_t size, size_t from) {
  constexpr size_t kMost = size_t{1} << 24;
  constexpr size_t kMostTimes = 64;
  if (size <= kMost + kMostTimes * from) return;
  throw InputError(fmt::format(
      "the tokenizer's normalizer makes more than {} bytes of a text of {}", size - 1, from));
}

}  // namespace

NormalizerStep to_form(text::NormalForm form) {
  return [form](std::string_view text, std::string& scratch) {
    return text::normalize(form, text, scratch);
  };
}

NormalizerStep to_lower() {
  return [](std::string_view text, std::string& scratch) -> std::string_view {
    return scratch = text::to_lower_each(text);
  };
}

NormalizerStep replace(Matcher what, std::string with) {
  return [what = std::move(what), with = std::move(with)](std::string_view text,
                                                          std::string& scratch) {
    if (text.empty()) return text;  // Though some patterns match nothing.
    size_t done = 0;
    bool is_changed = false;
    what(text, [&](size_t begin, size_t end) {
      if (!std::exchange(is_changed, true)) scratch.clear();
      scratch += text.substr(done, begin - done);
      scratch += with;
      check_growth(scratch.size(), text.size());
      done = end;
    });
    if (!is_changed) return text;
    scratch += text.substr(done);
    return std::string_view(scratch);
  };
}

NormalizerStep prepend(std::string prefix) {
  return [prefix = std::move(prefix)](std::string_view text, std::string& scratch) {
    if (text.empty()) return text;
    scratch = prefix;
    scratch += text;
    return std::string_view(scratch);
  };
}

NormalizerStep strip(bool left, bool right) {
  return [left, right](std::string_view text, std::string&) {
    size_t begin = text.size();  // Of what is no white space, and its end.
    size_t end = 0;
    for (size_t at = 0; at < text.size();) {
      const text::CodePoint next = text::decode_utf8(text.substr(at));
      if (!text::is_space(next.value)) {
        begin = std::min(begin, at);
        end = at + next.num_bytes;
      }
      at += next.num_bytes;
    }
    if (!left) begin = 0;
    if (!right) end = text.size();
    return begin < end ? text.substr(begin, end - begin) : std::string_view();
  };
}

std::string_view Normalizer::apply(std::string_view text, Scratch& scratch) const {
  const size_t size = text.size();
  for (const NormalizerStep& step : steps_) {
    const char* const first = scratch[0].data();
    const bool is_in_first = text.data() >= first && text.data() <= first + scratch[0].size();
    text = step(text, scratch[is_in_first ? 1 : 0]);
    check_growth(text.size(), size);
  }
  return text;
}

}  // namespace atl::tokenizer
