#include "atoll/text/regex.h"

#include <fmt/format.h>
#include <oniguruma.h>

#include <array>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::text {
namespace {

// What matching may cost, in steps back; each search counts its own. Honest patterns take few at a
// place, but now and then many (a run of a million spaces), so some searches of a text may.
constexpr unsigned long kRetriesAtPlace = 20'000;
constexpr unsigned long kMostRetriesAtPlace = 10'000'000;
constexpr int kMostLongSearches = 100;
constexpr unsigned kMostPlaces = 1U << 24;  // To go back to, some tens of bytes each.
constexpr size_t kMostPattern = size_t{1} << 16;
constexpr size_t kMostWrittenOut = size_t{1} << 22;

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
    if (pattern.size() > kMostPattern) throw InputError("a pattern is longer than 64 KiB");
    const std::string used = with_unicode_16(pattern);
    if (used.size() > kMostWrittenOut) {
      throw InputError(fmt::format("the pattern {} has too many classes", shortened(pattern)));
    }
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

namespace {

/// The matches of one text, one after the other.
class Search {
 public:
  Search(regex_t* regex, const std::string& pattern, std::string_view text)
      : regex_(regex), pattern_(pattern), text_(text) {
    onig_initialize_match_param(limits_.get());
    onig_set_match_stack_limit_size_of_match_param(limits_.get(), kMostPlaces);
    onig_set_retry_limit_in_search_of_match_param(limits_.get(), 0);  // Each place has its own.
  }

  /// Whether there is one at or behind `from`.
  bool next(size_t from) {
    int found = search(from, kRetriesAtPlace);
    if (found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER && num_long_ < kMostLongSearches) {
      ++num_long_;
      found = search(from, kMostRetriesAtPlace);
    }
    if (found == ONIG_MISMATCH) return false;
    if (found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER) fail("it takes too long");
    if (found < 0) fail(message_of(found));
    if (begin() < from || end() < begin()) fail("it matches what stands before the last match");
    return true;
  }
  size_t begin() const { return static_cast<size_t>(region_->beg[0]); }
  size_t end() const { return static_cast<size_t>(region_->end[0]); }

 private:
  int search(size_t from, unsigned long most_retries) {
    onig_set_retry_limit_in_match_of_match_param(limits_.get(), most_retries);
    const OnigUChar* const text = bytes_of(text_);
    const OnigUChar* const end = text + text_.size();
    return onig_search_with_param(regex_, text, end, text + from, end, region_.get(),
                                  ONIG_OPTION_NONE, limits_.get());
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(fmt::format("the pattern {} cannot be searched for in a text of {} bytes: {}",
                                 shortened(pattern_), text_.size(), why));
  }

  struct Free {
    void operator()(OnigRegion* region) const { onig_region_free(region, /*free_self=*/1); }
    void operator()(OnigMatchParam* limits) const { onig_free_match_param(limits); }
  };
  regex_t* regex_;
  const std::string& pattern_;
  std::string_view text_;
  std::unique_ptr<OnigRegion, Free> region_{onig_region_new()};
  std::unique_ptr<OnigMatchParam, Free> limits_{onig_new_match_param()};
  int num_long_ = 0;  // Searches.
};

}  // namespace

void Regex::each_match(std::string_view text,
                       const std::function<void(size_t begin, size_t end)>& on_match) const {
  Search search(compiled_->regex, pattern_, text);
  size_t last_end = std::string_view::npos;
  for (size_t from = 0; from <= text.size() && search.next(from);) {
    if (search.begin() == search.end() && search.begin() == last_end) {
      if (from == text.size()) return;
      from += decode_utf8(text.substr(from)).num_bytes;
      continue;
    }
    from = last_end = search.end();
    on_match(search.begin(), search.end());
  }
}

}  // namespace atl::text
