#pragma once
// How byte-level tokenizers in GGUF files cut words: the files have a name for it only.
#include <array>
#include <string_view>

#include "atoll/tokenizer/word_patterns.h"

namespace atl::tokenizer {

struct GgufWords {
  std::string_view name;  // tokenizer.ggml.pre; llama.cpp knows each of these.
  std::string_view pattern;
  bool parts_digits = false;  // Before the pattern.
  bool is_nfc = false;        // The file does not say how text is normalised.
  // Llama 3's and Mistral's: a word that is a token is taken whole, and a text begins with a token
  // where the file does not say otherwise.
  bool is_of_ranks = false;

  /// Whether words are cut the same way.
  bool is_like(const GgufWords& other) const {
    return pattern == other.pattern && parts_digits == other.parts_digits &&
           is_nfc == other.is_nfc && is_of_ranks == other.is_of_ranks;
  }
};

/// Of those that are alike the first is the usual one.
inline constexpr std::array kGgufWords = {
    GgufWords{"gpt-2", kGpt2Pattern},
    GgufWords{"olmo", kGpt2Pattern, false, true},
    GgufWords{"mpt", kGpt2Pattern, false, true},
    GgufWords{"smollm", kGpt2Pattern, true},
    GgufWords{"starcoder", kGpt2Pattern, true},
    GgufWords{"refact", kGpt2Pattern, true},
    GgufWords{"exaone", kGpt2Pattern, true},
    GgufWords{"command-r", kGpt2Pattern, true, true},
    GgufWords{"llama-bpe", kCl100kPattern, false, false, true},
    GgufWords{"llama3", kCl100kPattern, false, false, true},
    GgufWords{"llama-v3", kCl100kPattern, false, false, true},
    GgufWords{"dbrx", kCl100kPattern},
    GgufWords{"smaug-bpe", kCl100kPattern},
    GgufWords{"qwen2", kQwenPattern, false, true},
    GgufWords{"deepseek-r1-qwen", kQwenPattern, false, true},
    GgufWords{"stablelm2", kQwenPattern, false, true},
    GgufWords{"tekken", kTekkenPattern, false, false, true},
    GgufWords{"gpt-4o", kO200kPattern},
    GgufWords{"llama4", kO200kPattern}};

}  // namespace atl::tokenizer
