#include "atoll/text/regex.h"

#include <fmt/format.h>
#include <oniguruma.h>

#include <array>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::text {
namespace {

// What one search may cost: steps back, of which honest patterns take a few for each byte, and
// places to go back to, some tens of bytes each.
constexpr unsigned long kMostRetries = 10'000'000;
constexpr unsigned long kRetriesPerByte = 1'000;
constexpr unsigned kMostPlaces = 1U << 24;

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

template <typename... Details>
std::string message_of(int code, Details*... details) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> buffer{};
  const int size = onig_error_code_to_str(buffer.data(), code, details...);
  return {reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(size)};
}

std::string shortened(const std::string& pattern) {
  constexpr size_t kShown = 100;
  return pattern.size() <= kShown ? pattern : pattern.substr(0, kShown) + "...";
}

}  // namespace

struct Regex::Compiled {
  regex_t* regex = nullptr;

  explicit Compiled(const std::string& pattern) {
    static const bool is_ready = [] {
      OnigEncoding utf8 = ONIG_ENCODING_UTF8;
      return onig_initialize(&utf8, 1) == ONIG_NORMAL;
    }();
    if (!is_ready) throw InputError("Oniguruma could not be initialised");
    const std::string used = with_unicode_16(pattern);
    const OnigUChar* const begin = bytes_of(used);
    OnigErrorInfo info{};
    const int code = onig_new(&regex, begin, begin + used.size(), ONIG_OPTION_NONE,
                              ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    if (code != ONIG_NORMAL) {
      throw InputError(fmt::format("the pattern {} is no regular expression of Oniguruma: {}",
                                   shortened(pattern), message_of(code, &info)));
    }
  }
  ~Compiled() { onig_free(regex); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
};

Regex::Regex(std::string pattern) : pattern_(std::move(pattern)) {
  if (valid_utf8_prefix(pattern_) != pattern_.size()) throw InputError("a pattern is not UTF-8");
  compiled_ = std::make_unique<const Compiled>(pattern_);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::each_match(std::string_view text,
                       const std::function<void(size_t begin, size_t end)>& on_match) const {
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
      onig_region_new(), [](OnigRegion* one) { onig_region_free(one, /*free_self=*/1); });
  const std::unique_ptr<OnigMatchParam, void (*)(OnigMatchParam*)> limits(onig_new_match_param(),
                                                                          onig_free_match_param);
  onig_initialize_match_param(limits.get());
  onig_set_match_stack_limit_size_of_match_param(limits.get(), kMostPlaces);
  onig_set_retry_limit_in_match_of_match_param(limits.get(), kMostRetries);
  onig_set_retry_limit_in_search_of_match_param(limits.get(),
                                                kMostRetries + kRetriesPerByte * text.size());
  const OnigUChar* const begin = bytes_of(text);
  const OnigUChar* const end = begin + text.size();
  size_t last_end = std::string_view::npos;
  for (size_t from = 0; from <= text.size();) {
    const int found = onig_search_with_param(compiled_->regex, begin, end, begin + from, end,
                                             region.get(), ONIG_OPTION_NONE, limits.get());
    if (found == ONIG_MISMATCH) return;
    if (found < 0) {
      throw InputError(fmt::format("the pattern {} takes too long on a text of {} bytes: {}",
                                   shortened(pattern_), text.size(), message_of(found)));
    }
    const auto first = static_cast<size_t>(region->beg[0]);
    const auto last = static_cast<size_t>(region->end[0]);
    if (first == last && first == last_end) {
      if (from == text.size()) return;
      from += decode_utf8(text.substr(from)).num_bytes;
      continue;
    }
    from = last_end = last;
    on_match(first, last);
  }
}

}  // namespace atl::text
