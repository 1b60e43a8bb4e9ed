#include "atoll/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/tokenizer/tokenizer_tables.h"

namespace atl::tokenizer {

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerTables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<TokenId> ids;
  Encoder(*this).encode(text, special, ids);
  return ids;
}

std::vector<TokenId> Tokenizer::with_special_tokens(std::vector<TokenId> ids) const {
  ids.insert(ids.begin(), tables_->prefix.begin(), tables_->prefix.end());
  ids.insert(ids.end(), tables_->suffix.begin(), tables_->suffix.end());
  return ids;
}

bool Tokenizer::is_known(int64_t id) const {
  return std::in_range<TokenId>(id) && tables_->knows(static_cast<TokenId>(id));
}

std::string_view Tokenizer::bytes_or_none(int64_t id) const {
  return is_known(id) ? std::string_view(tables_->bytes[static_cast<size_t>(id)])
                      : std::string_view();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (!is_known(id)) {
    throw InputError(
        fmt::format("token id {} is not in the vocabulary ({} ids)", id, vocab_size()));
  }
  return tables_->bytes[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  if (ids.empty()) return "";
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto first = i == 0 ? tables_->first_bytes.find(ids[i]) : tables_->first_bytes.end();
    const auto last =
        i + 1 == ids.size() ? tables_->last_bytes.find(ids[i]) : tables_->last_bytes.end();
    text += first != tables_->first_bytes.end() ? first->second
            : last != tables_->last_bytes.end() ? last->second
                                                : token_bytes(ids[i]);
  }
  const size_t num_spaces = std::min(text.find_first_not_of(' '), text.size());
  text.erase(0, std::min(num_spaces, tables_->num_stripped));
  return text;
}

std::string Tokenizer::decode_part(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    text += token_bytes(std::in_range<TokenId>(id) ? static_cast<TokenId>(id) : TokenId{-1});
  }
  return text;
}

bool Tokenizer::keeps_text() const {
  const bool strips = std::ranges::any_of(
      tables_->added, [](const AddedToken& token) { return token.lstrip || token.rstrip; });
  return tables_->is_byte_level && tables_->normalizer.is_empty() &&
         tables_->pre_tokenizer.keeps_text() && !strips && tables_->symbols.has_all_bytes();
}

int64_t Tokenizer::vocab_size() const { return std::ssize(tables_->bytes); }

bool Tokenizer::fits(int64_t vocab_size) const {
  int64_t num_beyond = 0;
  for (int64_t id = vocab_size; id < this->vocab_size(); ++id) {
    num_beyond += static_cast<int64_t>(tables_->is_known[static_cast<size_t>(id)]);
  }
  return num_beyond == std::ranges::count_if(tables_->added, [&](const AddedToken& token) {
           return token.id >= vocab_size;
         });
}

std::optional<TokenId> Tokenizer::id_of(std::string_view special_token) const {
  for (const AddedToken& token : tables_->added) {
    if (token.content == special_token) return token.id;
  }
  return {};
}

std::vector<TokenId> Tokenizer::special_ids() const {
  std::vector<TokenId> ids;
  for (const AddedToken& token : tables_->added) {
    if (token.special) ids.push_back(token.id);
  }
  return ids;
}

TokenId Tokenizer::end_of_text() const {
  for (const std::string_view name : {kEndOfText, std::string_view("<|end_of_text|>"),
                                      std::string_view("</s>"), std::string_view("<eos>")}) {
    if (const auto id = id_of(name)) return *id;
  }
  throw InputError(
      "the tokenizer has no end-of-text token: none of <|endoftext|>, "
      "<|end_of_text|>, </s>, <eos> is among its added_tokens");
}

const std::string& Tokenizer::json() const { return tables_->json; }
const std::string& Tokenizer::sha256() const { return tables_->sha256; }

}  // namespace atl::tokenizer
