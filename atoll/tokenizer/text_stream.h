#pragma once
// Text as it is made, token by token: whole characters only, and nothing of a stop string, which
// may begin in one token and end in another. One thread.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::tokenizer {

class TextStream {
 public:
  /// Throws UsageError when a stop string is empty or no UTF-8.
  explicit TextStream(std::vector<std::string> stops = {});

  /// What may be shown now that `bytes` have come: text that no later byte can change. Bytes that
  /// are not UTF-8 are shown as U+FFFD.
  std::string add(std::string_view bytes);
  /// The rest, when nothing more comes.
  std::string finish();
  /// A stop string has come. The text ends before the first of them.
  bool is_stopped() const { return is_stopped_; }
  /// How many of the bytes that came were shown.
  size_t num_shown_bytes() const { return num_shown_bytes_; }

 private:
  /// The first `size` bytes that wait, but of a character that is not whole only with `all`.
  std::string take(size_t size, bool all);
  /// How many of the last bytes may be the begin of a stop string.
  size_t num_held() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool is_stopped_ = false;
  size_t num_shown_bytes_ = 0;
};

}  // namespace atl::tokenizer
