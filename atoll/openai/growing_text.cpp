#include "atoll/openai/growing_text.h"

#include <algorithm>
#include <utility>

namespace atl::openai {

GrowingText::GrowingText(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stream_(std::move(stops)) {}

Piece GrowingText::repeat(const PromptIds& prompt,
                          const std::vector<decoding::TokenScore>& scores) {
  const std::vector<std::string> bytes = bytes_of_ids(prompt, tokenizer_);
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    const bool is_scored = i > 0 && i - 1 < scores.size();
    note(is_scored ? scores[i - 1] : decoding::TokenScore{.id = prompt.ids[i]}, bytes[i],
         is_scored);
  }
  whole_.finish();  // What the model makes completes no character of the prompt's.
  tokenizer::TextStream repaired;
  Piece piece{.text = repaired.add(prompt.text) + repaired.finish()};
  num_characters_ = num_characters(piece.text);
  num_repeated_ = num_bytes_;
  take_tokens(piece, /*all=*/true);
  return piece;
}

Piece GrowingText::add(const decoding::TokenScore& score) {
  const std::string_view bytes = tokenizer_.bytes_or_none(score.id);
  note(score, bytes, /*is_scored=*/true);
  Piece piece{.text = stream_.add(bytes)};
  take_tokens(piece, /*all=*/false);
  if (is_stopped()) noted_.clear();  // What is left begins behind the end.
  return piece;
}

void GrowingText::add_end(const decoding::TokenScore& score) {
  note(score, {}, /*is_scored=*/true);
}

Piece GrowingText::finish() {
  Piece piece{.text = stream_.finish()};
  take_tokens(piece, /*all=*/true);
  return piece;
}

void GrowingText::note(const decoding::TokenScore& score, std::string_view bytes, bool is_scored) {
  noted_.push_back({{score, num_characters_, is_scored}, num_bytes_});
  num_characters_ += num_characters(whole_.add(bytes));
  num_bytes_ += bytes.size();
}

void GrowingText::take_tokens(Piece& piece, bool all) {
  const size_t shown = num_repeated_ + stream_.num_shown_bytes();
  while (!noted_.empty() && (all || noted_.front().begin < shown)) {
    piece.tokens.push_back(std::move(noted_.front().token));
    noted_.pop_front();
  }
}

int64_t num_characters(std::string_view utf8) {
  return std::ranges::count_if(utf8, [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace atl::openai
