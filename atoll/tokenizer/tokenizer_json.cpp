// Reads tokenizer.json: what is before and behind the model (read_words.cpp,
// tokenizer_components.cpp), the model (read_model.cpp), the added tokens.
#include <algorithm>

#include "atoll/base/bytes.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/text/python_text.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/tokenizer_file.h"

namespace atl::tokenizer {
namespace {

class AddedTokensReader {
 public:
  AddedTokensReader(const TokenizerFile& file, const DecoderRule& decoder,
                    const Vocabulary& vocabulary, TokenizerTables& tables)
      : file_(file), decoder_(decoder), vocabulary_(vocabulary), tables_(tables) {}

  void read() {
    const Json& entries = file_.part("added_tokens");
    if (entries.is_null()) return;
    if (!entries.is_array()) file_.fail("\"added_tokens\" is not a list");
    std::unordered_map<std::string, size_t> places;
    auto next_id = static_cast<TokenId>(vocabulary_.size());
    for (const Json& entry : entries) {
      AddedToken token = read_added_token(entry);
      const auto [place, is_new] = places.emplace(token.content, tables_.added.size());
      if (!is_new) {
        if (tables_.added[place->second].id != token.id) refuse_id(token);
        tables_.added[place->second] = std::move(token);
        continue;
      }
      check_id(token, next_id);
      tables_.added.push_back(std::move(token));
    }
    make_matchers();
  }

 private:
  AddedToken read_added_token(const Json& entry) const {
    AddedToken token;
    token.content = file_.text(entry, "added_tokens", "content");
    token.id = file_.token_id(file_.field(entry, "added_tokens", "id"), "added_tokens");
    token.special = file_.flag(entry, "special", false);
    token.normalized = file_.flag(entry, "normalized", !token.special);
    token.single_word = file_.flag(entry, "single_word", false);
    token.lstrip = file_.flag(entry, "lstrip", false);
    token.rstrip = file_.flag(entry, "rstrip", false);
    if (token.content.empty()) {
      file_.fail(fmt::format("added_tokens: the token with id {} has no content", token.id));
    }
    return token;
  }

  [[noreturn]] void refuse_id(const AddedToken& token) const {
    file_.fail(fmt::format("added_tokens: \"{}\" has id {}, which is the id of another token",
                           token.content, token.id));
  }

  /// An added token may repeat its entry in the vocabulary, but not take another token's id: texts
  /// with that token would decode to something else. New ones follow the vocabulary without gaps:
  /// `tokenizers` deals their ids itself, and a file that says otherwise means two things.
  void check_id(const AddedToken& token, TokenId& next_id) const {
    const auto found = vocabulary_.find(token.content);
    const bool is_new = found == vocabulary_.end();
    const TokenId dealt = is_new ? next_id++ : found->second;
    if (token.id == dealt && (!is_new || !tables_.knows(token.id))) return;
    if (tables_.knows(token.id)) refuse_id(token);
    file_.fail(
        fmt::format("added_tokens: \"{}\" has id {}, but Hugging Face's library would give it {}: "
                    "list added tokens in the order of their ids, without gaps",
                    token.content, token.id, dealt));
  }

  void make_matchers() {
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    Normalizer::Scratch scratches;
    std::string mark_scratch;
    for (AddedToken token : tables_.added) {
      if (token.normalized) {
        token.content =
            tables_.marks.apply(tables_.normalizer.apply(token.content, scratches), mark_scratch);
        if (token.content.empty()) {
          file_.fail(fmt::format(
              "added_tokens: of the token with id {} the normalizer leaves nothing", token.id));
        }
      }
      // It is decoded to what it is looked for as.
      const bool has_marks = token.normalized && tables_.marks.are_used;
      const std::string spelling =
          has_marks ? text::replace_text(token.content, " ", kMark, -1) : token.content;
      tables_.spell(token.id, spelling, decoder_);
      if (tables_.is_byte_level) tables_.bytes[static_cast<size_t>(token.id)] = spelling;
      (token.normalized ? normalized : raw).push_back(std::move(token));
    }
    const auto space = tables_.marks.are_used ? SpaceMeaning::kMark : SpaceMeaning::kSpace;
    tables_.raw = AddedTokenMatcher(std::move(raw), SpaceMeaning::kSpace);
    tables_.normalized = AddedTokenMatcher(std::move(normalized), space);
  }

  const TokenizerFile& file_;
  const DecoderRule& decoder_;
  const Vocabulary& vocabulary_;
  TokenizerTables& tables_;
};

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& name) {
  Json json = text::parse_json(text, "'" + name + "'");
  if (is_tekken(json)) return from_json(json_of_tekken(json, name), name);
  const TokenizerFile file(std::move(json), name);
  auto tables = std::make_unique<TokenizerTables>();
  tables->json = text;
  tables->sha256 = hex(atl::sha256(as_byte_span(text)));
  check_keys(file);
  read_words(file, *tables);
  const DecoderRule decoder = read_decoder(file, *tables);
  const Vocabulary vocabulary = read_model(file, decoder, *tables);
  AddedTokensReader(file, decoder, vocabulary, *tables).read();
  read_post_processor(file, *tables);
  return Tokenizer(std::move(tables));
}

Tokenizer Tokenizer::from_bytes(std::string_view bytes, const std::string& name) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || bytes[first] == '{') return from_json(bytes, name);
  if (is_tiktoken(bytes)) return from_json(json_of_tiktoken(bytes, name), name);
  return from_json(json_of_sentence_piece(bytes, name), name);
}

std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model",
                           "sentencepiece.bpe.model", "tiktoken.model", "qwen.tiktoken"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  return std::filesystem::is_regular_file(folder) ? std::optional(folder) : std::nullopt;
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  if (codec::GgufFile::is_one(path)) {
    return from_json(json_of_gguf(codec::GgufFile(path)), path.string());
  }
  if (!std::filesystem::is_directory(path)) return from_bytes(read_file(path), path.string());
  const auto file = find_tokenizer(path);
  if (!file) {
    throw InputError(
        fmt::format("'{}' has no tokenizer: no tokenizer.json, tekken.json, "
                    "tokenizer.model, spiece.model or tiktoken.model",
                    path.string()));
  }
  return load(*file);
}

}  // namespace atl::tokenizer
