#pragma once
// SentencePiece's table of what characters become, a double array trie, run as `tokenizers` runs
// it. Immutable, shared by threads.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/regex.h"

namespace atl::tokenizer {

class Charsmap {
 public:
  /// `table`: the bytes of the trie, counted in the first four, and what its leaves point to.
  /// Throws InputError where that is not so.
  explicit Charsmap(std::string_view table);

  /// `text`, which must be valid UTF-8, or a copy in `scratch`: each cluster of under six bytes,
  /// else each character, becomes what the table has for its shortest beginning that is there.
  std::string_view apply(std::string_view text, std::string& scratch) const;

 private:
  /// What `part` becomes.
  std::optional<std::string_view> find(std::string_view part) const;
  void append_cluster(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string texts_;  // Each ends with a zero.
  text::Regex cluster_;
};

}  // namespace atl::tokenizer
