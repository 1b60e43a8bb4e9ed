#pragma once
// Tokenizers as Hugging Face's tokenizer.json describes them: text to token ids and
// back, equal id for id to the `tokenizers` library and several times as fast (one thread,
// bench/tokenizer_speed.py).
//
// A Tokenizer never changes after loading and may be shared by threads. An Encoder adds a bounded
// cache of words, belongs to one thread, and must not outlive its Tokenizer.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl::tokenizer {

using TokenId = int32_t;

/// The token that ends every document.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

/// What becomes of special tokens written out in the text.
enum class SpecialText {
  kToken,  // "<|endoftext|>" in the text is that token, as in `tokenizers`. Not for strangers'
           // text.
  kPlain,  // It is ordinary characters: a document cannot forge its own end.
};

struct TokenizerTables;

/// The file of the tokenizer in `folder`: tokenizer.json, or else what its authors train with. A
/// model that is a file has its own. Nothing where there is none.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& folder);

/// A file of a model's folder about its tokenizer, or what a GGUF file has in its place:
/// tokenizer_config.json. Nothing where there is none.
std::optional<std::string> tokenizer_text(const std::filesystem::path& model,
                                          const std::string& name);

class Tokenizer {
 public:
  /// A file: tokenizer.json, SentencePiece's tokenizer.model, Mistral's tekken.json, a tiktoken
  /// file, a model's GGUF file; or a folder with one. Throws InputError when it is none of these,
  /// or has a component that this version does not support (the message names it): other ids would
  /// be worse than none.
  static Tokenizer load(const std::filesystem::path& path);
  /// The same from the file's bytes; `name` appears in messages.
  static Tokenizer from_bytes(std::string_view bytes, const std::string& name);
  static Tokenizer from_json(std::string_view json, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The ids of `text`; no token is added around it. Bytes that are not UTF-8 count as U+FFFD (see
  /// text/utf8.h). Convenient for prompts; use an Encoder for much text.
  std::vector<TokenId> encode(std::string_view text, SpecialText special) const;
  /// `ids` with the tokens around it that the file's post-processor asks for, often none.
  std::vector<TokenId> with_special_tokens(std::vector<TokenId> ids) const;

  /// The exact bytes of a text that begins with `ids`, special tokens written out; without the
  /// space that a SentencePiece-style tokenizer put before it. Ids may end inside a character, so
  /// the result need not be valid UTF-8 (text/utf8.h repairs). Throws InputError at an unknown id.
  std::string decode(std::span<const TokenId> ids) const;
  /// The bytes of ids that stand within a text: all of them.
  std::string decode_part(std::span<const int64_t> ids) const;
  /// The bytes of an id that a model made; none of one that is only in its padded vocabulary.
  std::string_view bytes_or_none(int64_t id) const;
  /// The bytes of one token within a text.
  std::string_view token_bytes(TokenId id) const;

  /// Whether ids give back the text that they were made from, to the byte; not where it was
  /// normalised first, added tokens take white space, or the vocabulary lacks a byte that texts
  /// have.
  bool keeps_text() const;

  /// One more than the largest id: the rows a model's embedding needs.
  int64_t vocab_size() const;
  /// Whether a model with so many ids goes with it: only added tokens may lie beyond them, as Gemma
  /// 3's for images does; a text that has one is refused where it is read.
  bool fits(int64_t vocab_size) const;
  std::optional<TokenId> id_of(std::string_view special_token) const;
  /// The ids that are no text: those that begin, end and divide texts.
  std::vector<TokenId> special_ids() const;
  /// The id of <|endoftext|>, or of the file's only end-of-sequence-like special token ("</s>",
  /// "<|end_of_text|>", "<eos>"). Throws InputError when there is none.
  TokenId end_of_text() const;

  /// The tokenizer.json exactly as it was loaded (checkpoints carry it), or what the other file is
  /// as one, and its SHA-256 in hexadecimal.
  const std::string& json() const;
  const std::string& sha256() const;

 private:
  friend class Encoder;
  explicit Tokenizer(std::unique_ptr<const TokenizerTables> tables);
  bool is_known(int64_t id) const;
  std::unique_ptr<const TokenizerTables> tables_;
};

/// Encodes much text on one thread.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  /// Appends the ids of `text` to `ids`.
  void encode(std::string_view text, SpecialText special, std::vector<TokenId>& ids);
  /// How many bad byte sequences were read as U+FFFD so far.
  int64_t num_replaced() const;
  /// How many characters, or bytes of them, have no ids, since the vocabulary lacks them and has no
  /// token for unknown ones.
  int64_t num_without_token() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::tokenizer
