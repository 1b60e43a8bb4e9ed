#pragma once
// Words already merged. Text repeats its words, so nearly every lookup ends here, and the loop that
// does them decides the tokenizer's speed: a word of up to 16 bytes lives with its ids in one cache
// line, compared as two integers. Longer words (indentation, rules of dashes) have a second table
// with their bytes in an arena. Both are bounded: the short one overwrites, the long one starts
// anew.
//
// One owner thread.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

/// A word of at most 16 bytes as two integers, zeros behind its end.
struct ShortWord {
  uint64_t low = 0;
  uint64_t high = 0;
  uint32_t size = 0;

  static constexpr size_t kMaxBytes = 16;
  /// `text_end` is where the buffer ends: with 16 bytes left they are read at once.
  static ShortWord read(const char* word, size_t size, const char* text_end) {
    std::array<uint64_t, 2> words{};
    if (text_end - word >= 16) {
      std::memcpy(words.data(), word, 16);
      words[0] &= kMasks[size][0];
      words[1] &= kMasks[size][1];
    } else {
      std::memcpy(words.data(), word, size);
    }
    return {words[0], words[1], static_cast<uint32_t>(size)};
  }

 private:
  using Masks = std::array<std::array<uint64_t, 2>, kMaxBytes + 1>;
  static constexpr Masks make_masks() {
    Masks masks{};
    for (size_t size = 0; size <= kMaxBytes; ++size) {
      for (size_t byte = 0; byte < size; ++byte) {
        masks[size][byte / 8] |= uint64_t{0xff} << (8 * (byte % 8));
      }
    }
    return masks;
  }
  static const Masks kMasks;
};
inline constexpr ShortWord::Masks ShortWord::kMasks = ShortWord::make_masks();

class WordCache {
 public:
  static constexpr size_t kMaxIds = 11;  // Words of more ids are merged each time.
  static constexpr size_t kMaxLongBytes = 256;

  struct alignas(64) Entry {
    uint64_t low;
    uint64_t high;
    uint32_t word_size;  // 0: the slot is free.
    uint8_t num_ids;
    std::array<TokenId, kMaxIds> ids;
  };

  WordCache();
  /// The entry of `word`, or null.
  const Entry* find(const ShortWord& word) const {
    const Entry* home = entries_.get() + home_slot(word);
    for (size_t probe = 0; probe < kProbes; ++probe) {
      const Entry& entry = home[probe];
      if (entry.low == word.low && entry.high == word.high && entry.word_size == word.size) {
        return &entry;
      }
    }
    return nullptr;
  }
  void insert(const ShortWord& word, std::span<const TokenId> ids);

  /// The ids of a word of 17 to kMaxLongBytes bytes; empty when it is not held.
  std::span<const TokenId> find_long(std::string_view word) const;
  void insert_long(std::string_view word, std::span<const TokenId> ids);

 private:
  static constexpr size_t kLogEntries = 16;  // 4 MiB, touched as they fill.
  static constexpr size_t kProbes = 4;
  static constexpr size_t kLogLongSlots = 14;
  static constexpr size_t kMaxLongWords = size_t{1} << (kLogLongSlots - 1);

  struct LongSlot {
    uint64_t hash = 0;
    uint32_t bytes_begin = 0;
    uint32_t ids_begin = 0;
    uint16_t num_bytes = 0;  // 0: the slot is free.
    uint16_t num_ids = 0;
  };
  struct Free {
    void operator()(Entry* entries) const;
  };

  static size_t home_slot(const ShortWord& word) {
    const uint64_t mixed = (word.low ^ (word.high * 0xD6E8FEB86659FD93U)) * 0x9E3779B97F4A7C15U;
    return (mixed ^ (mixed >> 32)) * 0x9E3779B97F4A7C15U >> (64 - kLogEntries);
  }
  size_t long_slot(std::string_view word, uint64_t hash) const;

  std::unique_ptr<Entry[], Free> entries_;
  std::vector<LongSlot> long_slots_;
  std::vector<char> long_bytes_;
  std::vector<TokenId> long_ids_;
  size_t num_long_ = 0;
};

}  // namespace atl::tokenizer
