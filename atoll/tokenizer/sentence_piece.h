#pragma once
// A SentencePiece model that was read, whichever file it stood in. Internal to the tokenizer's own
// files.
#include <string>

#include "sentence_piece.pb.h"

namespace atl::tokenizer {

/// As json_of_sentence_piece() of a file's bytes. The model must have pieces.
std::string json_of_sentence_piece(sentence_piece::Model model, const std::string& name);

}  // namespace atl::tokenizer
