// tokenizer.model -> tokenizer.json. What spells a space there, the mark, does so here.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <numeric>
#include <utility>

#include "atoll/base/base64.h"
#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/sentence_piece.h"
#include "atoll/tokenizer/tokenizer_tables.h"

namespace atl::tokenizer {
namespace {

using Json = nlohmann::json;
using sentence_piece::Piece;
using sentence_piece::Trainer;

/// The number with the fewest digits that is this one in single precision. Of more digits the
/// library reads some wrongly in the last place, which decides between ways that are equally good.
double short_number(float value) {
  return number_in<double>(fmt::format("{}", value)).value_or(value);
}

class Converter {
 public:
  Converter(sentence_piece::Model file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  std::string json() {
    check();
    Json file = {{"version", "1.0"},
                 {"truncation", nullptr},
                 {"padding", nullptr},
                 {"added_tokens", added_tokens()},
                 {"normalizer", normalizer()},
                 {"pre_tokenizer", nullptr},
                 {"post_processor", nullptr},
                 {"decoder", decoder()},
                 {"model", is_bpe() ? bpe() : unigram()}};
    if (is_bpe()) file["post_processor"] = post_processor();
    if (!is_bpe() && is_cut_at_spaces()) {
      file["pre_tokenizer"] = {{"type", "Metaspace"},
                               {"replacement", kMark},
                               {"prepend_scheme", "never"},
                               {"split", true}};
    }
    return file.dump();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("'{}' {}", name_, what));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(fmt::format("{}: that is not supported (docs/formats_text.md)", what));
  }
  const Trainer& trainer() const { return file_.trainer(); }
  bool is_bpe() const { return trainer().model_type() == Trainer::BPE; }

  void check() {
    if (trainer().model_type() != Trainer::BPE && trainer().model_type() != Trainer::UNIGRAM) {
      unsupported("has a model of words or characters");
    }
    if (trainer().treat_whitespace_as_suffix()) unsupported("puts spaces behind words");
    if (!file_.normalizer().escape_whitespaces()) unsupported("does not spell spaces as marks");
    constexpr size_t kMostCharsmap = size_t{16} << 20;  // Fifty times what there is.
    if (file_.normalizer().precompiled_charsmap().size() > kMostCharsmap) {
      fail("has a table of characters that is too large");
    }
    std::unordered_set<std::string_view> seen;
    for (int id = 0; id < file_.pieces_size(); ++id) {
      const Piece& piece = file_.pieces(id);
      if (piece.text().empty()) fail("has a piece without text");
      if (text::valid_utf8_prefix(piece.text()) != piece.text().size()) {
        fail("has a piece that is not UTF-8");
      }
      if (!std::isfinite(piece.score())) {
        fail(fmt::format("gives \"{}\" a score that is no number", piece.text()));
      }
      if (!seen.insert(piece.text()).second) fail(fmt::format("has \"{}\" twice", piece.text()));
      if (piece.type() == Piece::UNUSED) {
        unsupported(fmt::format("has \"{}\", a piece that is made but not used", piece.text()));
      }
      if (piece.type() == Piece::UNKNOWN) unknown_ = id;
    }
  }

  const std::string& piece(int id) const { return file_.pieces(id).text(); }
  /// Whether it is made of a text's characters.
  bool is_plain(int id) const { return file_.pieces(id).type() == Piece::NORMAL; }

  Json added_tokens() const {
    Json tokens = Json::array();
    for (int id = 0; id < file_.pieces_size(); ++id) {
      const Piece::Type type = file_.pieces(id).type();
      const bool is_user_defined = type == Piece::USER_DEFINED;
      if (!is_user_defined && type != Piece::CONTROL && type != Piece::UNKNOWN) continue;
      // One with marks is looked for where spaces are marks.
      const bool has_mark = piece(id).find(kMark) != std::string::npos;
      tokens.push_back(added_token(piece(id), static_cast<size_t>(id), !is_user_defined,
                                   is_user_defined && has_mark));
    }
    return tokens;
  }

  Json normalizer() const {
    const sentence_piece::Normalizer& rules = file_.normalizer();
    Json steps = Json::array();
    if (!rules.precompiled_charsmap().empty()) {
      steps.push_back({{"type", "Precompiled"},
                       {"precompiled_charsmap", to_base64(rules.precompiled_charsmap())}});
    }
    if (rules.remove_extra_whitespaces()) {
      steps.push_back(
          {{"type", "Replace"}, {"pattern", {{"Regex", "\\A +| +\\z|(?<= ) +"}}}, {"content", ""}});
    }
    if (rules.add_dummy_prefix()) steps.push_back({{"type", "Prepend"}, {"prepend", kMark}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}});
    return {{"type", "Sequence"}, {"normalizers", steps}};
  }

  Json decoder() const {
    Json steps = {{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}},
                  {{"type", "ByteFallback"}},
                  {{"type", "Fuse"}}};
    if (file_.normalizer().add_dummy_prefix()) {
      steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  /// As the programs that serve such models do.
  Json post_processor() const {
    const int bos = trainer().bos_id();
    if (bos < 0 || bos >= file_.pieces_size() || is_plain(bos)) return nullptr;
    return token_before(piece(bos), static_cast<size_t>(bos));
  }

  Json bpe() const {
    std::vector<int> ids(static_cast<size_t>(file_.pieces_size()));
    std::iota(ids.begin(), ids.end(), 0);
    std::erase_if(ids, [this](int id) { return !is_plain(id); });
    std::ranges::sort(ids, {}, [this](int id) { return std::pair(-file_.pieces(id).score(), id); });
    std::vector<std::string> tokens;
    for (const int id : ids) tokens.push_back(piece(id));
    Json vocabulary = Json::object();
    for (int id = 0; id < file_.pieces_size(); ++id) vocabulary[piece(id)] = id;
    Json model = bpe_model(vocabulary, merges_of(tokens, {tokens.begin(), tokens.end()}, name_));
    model["fuse_unk"] = true;
    model["byte_fallback"] = trainer().byte_fallback();
    if (unknown_ >= 0) model["unk_token"] = piece(unknown_);
    return model;
  }

  Json unigram() const {
    Json vocabulary = Json::array();
    for (const Piece& piece : file_.pieces()) {
      vocabulary.push_back({piece.text(), short_number(piece.score())});
    }
    Json model = {{"type", "Unigram"},
                  {"unk_id", nullptr},
                  {"vocab", vocabulary},
                  {"byte_fallback", trainer().byte_fallback()}};
    if (unknown_ >= 0) model["unk_id"] = unknown_;
    return model;
  }

  /// Whether each mark begins a word, since no piece has one further on.
  bool is_cut_at_spaces() const {
    return std::ranges::none_of(file_.pieces(), [](const Piece& piece) {
      return piece.type() == Piece::NORMAL && piece.text().find(kMark, 1) != std::string::npos;
    });
  }

  sentence_piece::Model file_;
  std::string name_;
  int unknown_ = -1;
};

}  // namespace

std::string json_of_sentence_piece(std::string_view bytes, const std::string& name) {
  sentence_piece::Model model;
  const bool is_model = bytes.size() <= INT_MAX &&
                        model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
                        model.pieces_size() > 0;
  if (!is_model) {
    throw InputError(
        fmt::format("'{}' is neither a tokenizer.json nor a tekken.json, a "
                    "SentencePiece model, a tiktoken or a GGUF file",
                    name));
  }
  return json_of_sentence_piece(std::move(model), name);
}

std::string json_of_sentence_piece(sentence_piece::Model model, const std::string& name) {
  return Converter(std::move(model), name).json();
}

}  // namespace atl::tokenizer
