#include "atoll/tokenizer/word_cache.h"

#include <sys/mman.h>

#include <new>

#include "atoll/base/check.h"
#include "atoll/base/hash.h"

namespace atl::tokenizer {
namespace {

// The last probes of the last home slots run over the table's end.
constexpr size_t table_bytes(size_t log_entries, size_t probes) {
  return ((size_t{1} << log_entries) + probes) * sizeof(WordCache::Entry);
}

}  // namespace

// Mapped, not allocated: pages come zeroed when first touched, so a short prompt costs few of them.
WordCache::WordCache() {
  void* memory = ::mmap(nullptr, table_bytes(kLogEntries, kProbes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  entries_.reset(static_cast<Entry*>(memory));
}

void WordCache::Free::operator()(Entry* entries) const {
  ::munmap(entries, table_bytes(kLogEntries, kProbes));
}

void WordCache::insert(const ShortWord& word, std::span<const TokenId> ids) {
  if (ids.size() > kMaxIds) return;
  Entry* entry = entries_.get() + home_slot(word);
  for (size_t probe = 0; probe < kProbes; ++probe) {
    if (entry[probe].word_size != 0) continue;
    entry += probe;
    break;
  }
  entry->low = word.low;
  entry->high = word.high;
  entry->word_size = word.size;
  entry->num_ids = static_cast<uint8_t>(ids.size());
  std::copy(ids.begin(), ids.end(), entry->ids.begin());
}

size_t WordCache::long_slot(std::string_view word, uint64_t hash) const {
  for (size_t slot = hash >> (64 - kLogLongSlots);; slot = (slot + 1) % long_slots_.size()) {
    const LongSlot& held = long_slots_[slot];
    const bool same =
        held.hash == hash && held.num_bytes == word.size() &&
        std::memcmp(long_bytes_.data() + held.bytes_begin, word.data(), word.size()) == 0;
    if (held.num_bytes == 0 || same) return slot;
  }
}

std::span<const TokenId> WordCache::find_long(std::string_view word) const {
  if (long_slots_.empty()) return {};
  const LongSlot& held = long_slots_[long_slot(word, xxh3(word.data(), word.size()))];
  return std::span(long_ids_).subspan(held.ids_begin, held.num_ids);
}

void WordCache::insert_long(std::string_view word, std::span<const TokenId> ids) {
  ATOLL_CHECK(!word.empty() && word.size() <= kMaxLongBytes);
  if (long_slots_.empty() || num_long_ == kMaxLongWords) {
    long_slots_.assign(size_t{1} << kLogLongSlots, LongSlot{});
    long_bytes_.clear();
    long_ids_.clear();
    num_long_ = 0;
  }
  const uint64_t hash = xxh3(word.data(), word.size());
  LongSlot& slot = long_slots_[long_slot(word, hash)];
  slot = {hash, static_cast<uint32_t>(long_bytes_.size()), static_cast<uint32_t>(long_ids_.size()),
          static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
  long_bytes_.insert(long_bytes_.end(), word.begin(), word.end());
  long_ids_.insert(long_ids_.end(), ids.begin(), ids.end());
  ++num_long_;
}

}  // namespace atl::tokenizer
