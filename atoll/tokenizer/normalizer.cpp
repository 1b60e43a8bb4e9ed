#include "atoll/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/python_text.h"
#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/charsmap.h"

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

/// `text` character by character: `change(code, spelling, out)` appends what it becomes.
template <typename Change>
std::string changed(std::string_view text, const Change& change) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const text::CodePoint next = text::decode_utf8(text);
    change(next.value, text.substr(0, next.num_bytes), out);
    text.remove_prefix(next.num_bytes);
  }
  return out;
}

template <typename IsGone>
std::string without(std::string_view text, const IsGone& is_gone) {
  return changed(text, [&](uint32_t code, std::string_view spelling, std::string& out) {
    if (!is_gone(code)) out += spelling;
  });
}

bool is_nmt_space(uint32_t code) {
  return code == '\t' || code == '\n' || code == '\f' || code == '\r' || code == 0x1680 ||
         (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
         code == 0xfeff || code == 0xfffd;
}
bool is_nmt_control(uint32_t code) {
  return (code >= 0x01 && code <= 0x08) || code == 0x0b || (code >= 0x0e && code <= 0x1f) ||
         code == 0x7f || code == 0x8f || code == 0x9f;
}

/// The blocks that BERT's authors list.
bool is_chinese(uint32_t code) {
  return (code >= 0x3400 && code <= 0x4dbf) || (code >= 0x4e00 && code <= 0x9fff) ||
         (code >= 0xf900 && code <= 0xfaff) || (code >= 0x20000 && code <= 0x2a6df) ||
         (code >= 0x2a700 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
         (code >= 0x2f800 && code <= 0x2fa1f);
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

NormalizerStep strip_accents() {
  return [](std::string_view text, std::string& scratch) -> std::string_view {
    return scratch = without(text, text::is_accent);
  };
}

NormalizerStep nmt() {
  return [](std::string_view text, std::string& scratch) -> std::string_view {
    return scratch = changed(text, [](uint32_t code, std::string_view spelling, std::string& out) {
             if (!is_nmt_control(code)) out += is_nmt_space(code) ? " " : spelling;
           });
  };
}

NormalizerStep precompiled(std::string_view charsmap) {
  const auto map = std::make_shared<const Charsmap>(charsmap);
  return [map](std::string_view text, std::string& scratch) { return map->apply(text, scratch); };
}

NormalizerStep bert(const BertSteps& steps) {
  return [steps](std::string_view text, std::string& scratch) -> std::string_view {
    std::string all(text);
    if (steps.clean_text) {
      all = changed(all, [](uint32_t code, std::string_view spelling, std::string& out) {
        if (!text::is_unseen(code)) out += text::is_space(code) ? " " : spelling;
      });
    }
    if (steps.spaces_around_chinese) {
      all = changed(all, [](uint32_t code, std::string_view spelling, std::string& out) {
        const char* const around = is_chinese(code) ? " " : "";
        out.append(around).append(spelling).append(around);
      });
    }
    if (steps.strip_accents) {
      std::string decomposed;
      all = without(text::normalize(text::NormalForm::kNfd, all, decomposed), text::is_nonspacing);
    }
    if (steps.lowercase) all = text::to_lower_each(all);
    return scratch = std::move(all);
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
