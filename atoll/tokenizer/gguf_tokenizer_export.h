#pragma once
// A tokenizer as GGUF files have it: what gguf_tokenizer.cpp reads.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "atoll/codec/gguf_writer.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

/// Tokens by what they are for, as the format names it: "bos", "eos", "eot", "eom", "unknown",
/// "padding".
using GgufIds = std::map<std::string, int64_t>;

/// The tokens that a model's folder or file names, of `tokenizer`'s; of what it does not name,
/// `begin`, `ends` and `padding` (negative: none) are taken.
GgufIds gguf_ids(const std::filesystem::path& model, const Tokenizer* tokenizer, int64_t begin,
                 const std::vector<int64_t>& ends, int64_t padding);

/// How words are cut is written as the first name under which the file, read again, gives the same
/// ids for texts of all kinds and for each token. `vocab_size`: of the model, which may have more
/// ids than the tokenizer. Returns what stands for the way of cutting. Throws InputError where
/// nothing the format has does.
std::string put_gguf_tokenizer(codec::GgufWriter& file, const Tokenizer& tokenizer, GgufIds ids,
                               int64_t vocab_size);

/// In place of one, where there is none.
void put_no_gguf_tokenizer(codec::GgufWriter& file, const GgufIds& ids);

/// The chat template, or both.
void put_gguf_template(codec::GgufWriter& file, const std::filesystem::path& model);

}  // namespace atl::tokenizer
