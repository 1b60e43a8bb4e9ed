#pragma once
// Secrets are not left in memory that others get next. It is a courtesy of this process to itself:
// copies that libraries make are theirs.
#include <string>

namespace atl::identity {

/// Overwrites all that the text has room for, and empties it.
void wipe(std::string& secret);

/// A text that is overwritten when it goes.
class Secret {
 public:
  explicit Secret(std::string text) : text_(std::move(text)) {}
  ~Secret() { wipe(text_); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace atl::identity
