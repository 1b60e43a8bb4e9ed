#pragma once
// What a loaded tokenizer.json becomes. Internal to the tokenizer's own files.
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "atoll/data/added_tokens.h"
#include "atoll/data/bpe.h"
#include "atoll/data/tokenizer.h"

namespace atl::data {

struct TokenizerTables {
  std::string json;
  std::string sha256;
  std::vector<std::string> bytes;  // By id; an id that the file leaves out has none and
  std::vector<bool> is_known;      // is not known.
  std::array<TokenId, 256> byte_ids{};
  MergeTable merges;
  std::vector<AddedToken> added;
  AddedTokenMatcher raw;         // Cut out of the text as it comes,
  AddedTokenMatcher normalized;  // then these out of what is left.
  std::vector<TokenId> prefix;   // with_special_tokens() puts these around.
  std::vector<TokenId> suffix;
};

}  // namespace atl::data
