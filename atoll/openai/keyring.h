#pragma once
// Who may ask: by keys, as OpenAI's clients send them. Never changes; may be shared by threads.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::openai {

struct ApiKey {
  std::string name;    // For logs.
  std::string secret;  // At least 16 characters.
  double share = 1;    // Of the model, beside other keys' when all want more than there is.
};

class Keyring {
 public:
  /// Without keys everybody may ask. Throws UsageError at keys that are short, or the same, or
  /// without a share.
  explicit Keyring(const std::vector<ApiKey>& keys);

  bool is_open() const { return digests_.empty(); }
  /// Whose key it is: its place among the keys, 0 where everybody may ask. Nothing: nobody's.
  /// `authorization`: a header's value, "Bearer KEY".
  std::optional<size_t> find(std::string_view authorization) const;
  /// Whose texts those of a key are, whichever place it has: 0 where everybody may ask.
  uint64_t tenant_of(size_t key) const;
  /// One for each key; one where there is none.
  std::vector<double> shares() const;

 private:
  std::vector<std::string> digests_;  // Compared in their place, the time tells nothing of a key.
  std::vector<double> shares_;
};

/// A file of keys: on each line NAME KEY, and perhaps SHARE; lines that begin with # are passed
/// over. Throws UsageError naming file and line.
std::vector<ApiKey> read_keys(const std::string& text, const std::string& where);

}  // namespace atl::openai
