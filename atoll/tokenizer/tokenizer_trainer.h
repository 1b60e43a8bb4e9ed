#pragma once
// Learns a byte-level BPE vocabulary from text: counts words, then joins the most frequent pair of
// neighbours again and again (Sennrich et al. 2016). Ties go to the pair with the smaller ids, and
// ids are dealt as Hugging Face's trainer deals them (<|endoftext|>, the 256 bytes, the merges), so
// the same text gives the same file on every machine. One owner thread.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace atl::tokenizer {

inline constexpr int64_t kMinVocabulary = 257;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 20;

struct TrainerOptions {
  /// Ids in all, <|endoftext|> and the 256 bytes included: kMinVocabulary to kMaxVocabulary.
  int64_t vocab_size = 8192;
  /// A pair that occurs less often is not joined.
  int64_t min_frequency = 2;
};

/// How often each word of GPT-2's pre-tokeniser occurs.
class WordCounts {
 public:
  /// Bad UTF-8 counts as U+FFFD. Words over 4096 bytes (data, not language) are left out: they
  /// teach nothing and cost much.
  void add(std::string_view document);
  bool empty() const { return counts_.empty(); }
  /// How many bad byte sequences were read as U+FFFD so far.
  int64_t num_replaced() const { return num_replaced_; }

 private:
  friend std::string train_tokenizer(const WordCounts&, const TrainerOptions&,
                                     const std::function<void(int64_t)>&);
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const;
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
  int64_t num_replaced_ = 0;
};

/// The text of tokenizer.json. It has fewer ids than asked when no pair occurs often enough.
/// `progress` is told the ids made so far. Throws UsageError when an option is out of range,
/// InputError when there are no words.
std::string train_tokenizer(const WordCounts& words, const TrainerOptions& options,
                            const std::function<void(int64_t num_ids)>& progress);

}  // namespace atl::tokenizer
