#include "atoll/text/normal_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <unordered_map>
#include <vector>

#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"

namespace atl::text {
namespace {

struct Combining {
  uint32_t first, last;
  uint8_t combining_class;
};
struct Decomposition {
  uint32_t code, first, second;  // second = 0: to one character.
  bool composes;                 // The two give `code` again.
};

constexpr Combining kCombining[] = {
#include "atoll/text/unicode_combining.inc"
};
constexpr Decomposition kDecompositions[] = {
#include "atoll/text/unicode_decompositions.inc"
};

/// Code, how many it is compatible with in a row, those.
constexpr uint32_t kCompatible[] = {
#include "atoll/text/unicode_compatible.inc"
};

// Hangul syllables are made by arithmetic (Unicode 16, section 3.12).
constexpr uint32_t kSyllables = 0xAC00;
constexpr uint32_t kLeading = 0x1100;
constexpr uint32_t kVowels = 0x1161;
constexpr uint32_t kTrailing = 0x11A7;  // One before the first: none.
constexpr uint32_t kNumLeading = 19;
constexpr uint32_t kNumVowels = 21;
constexpr uint32_t kNumTrailing = 28;
constexpr uint32_t kNumSyllables = kNumLeading * kNumVowels * kNumTrailing;

bool is_in(uint32_t code, uint32_t first, uint32_t count) {
  return code >= first && code < first + count;
}

uint64_t pair_key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

/// For one form.
struct Tables {
  bool composes;
  std::vector<uint8_t> classes;   // By code point.
  std::vector<uint8_t> unstable;  // May change, or change what stands before it.
  std::unordered_map<uint32_t, Decomposition> decompositions;
  std::unordered_map<uint32_t, std::span<const uint32_t>> compatible;
  std::unordered_map<uint64_t, uint32_t> compositions;

  explicit Tables(NormalForm form)
      : composes(form == NormalForm::kNfc || form == NormalForm::kNfkc),
        classes(kClassLimit),
        unstable(kClassLimit) {
    for (const Combining& range : kCombining) {
      for (uint32_t code = range.first; code <= range.last; ++code) {
        classes[code] = range.combining_class;
        unstable[code] = 1;
      }
    }
    for (const Decomposition& one : kDecompositions) {
      decompositions.emplace(one.code, one);
      if (one.composes && composes) {
        compositions.emplace(pair_key(one.first, one.second), one.code);
        unstable[one.second] = 1;
      } else {
        unstable[one.code] = 1;
      }
    }
    if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) {
      for (std::span<const uint32_t> rest(kCompatible); !rest.empty();) {
        const size_t count = rest[1];
        compatible.emplace(rest[0], rest.subspan(2, count));
        unstable[rest[0]] = 1;
        rest = rest.subspan(2 + count);
      }
      for (const Decomposition& one : kDecompositions) {
        if (has_compatible(one.code)) unstable[one.code] = 1;
      }
    }
    if (composes) {
      std::fill_n(unstable.begin() + kVowels, kNumVowels, uint8_t{1});
      std::fill_n(unstable.begin() + kTrailing + 1, kNumTrailing - 1, uint8_t{1});
    } else {
      std::fill_n(unstable.begin() + kSyllables, kNumSyllables, uint8_t{1});
    }
  }

  /// Of what it falls apart into, a part is compatible with something else.
  bool has_compatible(uint32_t code) const {
    if (compatible.contains(code)) return true;
    const auto found = decompositions.find(code);
    return found != decompositions.end() &&
           (has_compatible(found->second.first) || has_compatible(found->second.second));
  }
  bool is_unstable(uint32_t code) const { return code < kClassLimit && unstable[code] != 0; }
  uint8_t class_of(uint32_t code) const { return code < kClassLimit ? classes[code] : uint8_t{0}; }

  void decompose(uint32_t code, std::vector<uint32_t>& out) const {
    if (is_in(code, kSyllables, kNumSyllables)) {
      const uint32_t index = code - kSyllables;
      out.push_back(kLeading + index / (kNumVowels * kNumTrailing));
      out.push_back(kVowels + index / kNumTrailing % kNumVowels);
      if (index % kNumTrailing != 0) out.push_back(kTrailing + index % kNumTrailing);
      return;
    }
    if (const auto same = compatible.find(code); same != compatible.end()) {
      for (const uint32_t each : same->second) decompose(each, out);
      return;
    }
    const auto found = decompositions.find(code);
    if (found == decompositions.end()) {
      out.push_back(code);
      return;
    }
    decompose(found->second.first, out);  // At most four deep.
    if (found->second.second != 0) decompose(found->second.second, out);
  }

  /// What the two become, or 0.
  uint32_t compose(uint32_t first, uint32_t second) const {
    if (is_in(first, kLeading, kNumLeading) && is_in(second, kVowels, kNumVowels)) {
      return kSyllables + ((first - kLeading) * kNumVowels + second - kVowels) * kNumTrailing;
    }
    if (is_in(first, kSyllables, kNumSyllables) && (first - kSyllables) % kNumTrailing == 0 &&
        is_in(second, kTrailing + 1, kNumTrailing - 1)) {
      return first + (second - kTrailing);
    }
    const auto found = compositions.find(pair_key(first, second));
    return found == compositions.end() ? 0 : found->second;
  }
};

const Tables& tables(NormalForm form) {
  static const Tables nfc(NormalForm::kNfc);
  if (form == NormalForm::kNfc) return nfc;
  static const std::array<Tables, 3> others = {Tables(NormalForm::kNfd), Tables(NormalForm::kNfkc),
                                               Tables(NormalForm::kNfkd)};
  return others[static_cast<size_t>(form) - 1];
}

/// Marks in the order of their classes; the order within a class stays.
void reorder(const Tables& t, std::vector<uint32_t>& codes) {
  constexpr int kCodeBits = 21;
  std::vector<uint64_t> run;  // Class, place, code: sorted as numbers.
  for (size_t i = 0; i <= codes.size(); ++i) {
    const uint8_t own_class = i < codes.size() ? t.class_of(codes[i]) : uint8_t{0};
    if (own_class != 0) {
      run.push_back(uint64_t{own_class} << 56 | uint64_t{i} << kCodeBits | codes[i]);
      continue;
    }
    std::sort(run.begin(), run.end());
    for (size_t j = 0; j < run.size(); ++j) {
      codes[i - run.size() + j] = static_cast<uint32_t>(run[j] & ((1U << kCodeBits) - 1));
    }
    run.clear();
  }
}

/// Unicode 16, section 3.11, D117: each character joins the last starter unless one between them
/// is in its way.
void compose(const Tables& t, std::vector<uint32_t>& codes) {
  size_t out = 0;
  size_t starter = codes.size();  // None yet.
  uint8_t last_class = 0;         // Of the last character kept behind the starter.
  for (const uint32_t code : codes) {
    const uint8_t own_class = t.class_of(code);
    const bool is_next = starter < out && out == starter + 1;
    if (starter < out && (is_next || (last_class != 0 && last_class < own_class))) {
      if (const uint32_t composed = t.compose(codes[starter], code)) {
        codes[starter] = composed;
        continue;
      }
    }
    if (own_class == 0) starter = out;
    last_class = own_class;
    codes[out++] = code;
  }
  codes.resize(out);
}

/// The first byte at or behind `from` that may begin an unstable character, `lowest` or more.
size_t find_suspect(std::string_view text, size_t from, uint8_t lowest) {
  for (; from < text.size(); ++from) {
    uint64_t word = 0;  // Most text is ASCII: eight bytes at a time.
    for (; from + sizeof(word) < text.size(); from += sizeof(word)) {
      std::memcpy(&word, text.data() + from, sizeof(word));
      if ((word & 0x8080808080808080U) != 0) break;
    }
    if (static_cast<uint8_t>(text[from]) >= lowest) break;
  }
  return from;
}

void normalize_segment(const Tables& t, std::string_view segment, std::string& out) {
  std::vector<uint32_t> codes;
  while (!segment.empty()) {
    const CodePoint next = decode_utf8(segment);
    t.decompose(next.value, codes);
    segment.remove_prefix(next.num_bytes);
  }
  reorder(t, codes);
  if (t.composes) compose(t, codes);
  for (const uint32_t code : codes) append_utf8(out, code);
}

}  // namespace

// A text falls into segments, a stable character and the unstable ones behind it, which change
// apart from each other.
std::string_view normalize(NormalForm form, std::string_view text, std::string& scratch) {
  const Tables& t = tables(form);
  // To form C all below U+0300 are stable, to the others those of ASCII.
  const uint8_t lowest = form == NormalForm::kNfc ? 0xCC : 0xC2;
  bool changed = false;
  size_t done = 0;  // Of `text`, in `scratch`.
  size_t at = 0;
  while ((at = find_suspect(text, at, lowest)) < text.size()) {
    const CodePoint first = decode_utf8(text.substr(at));
    if (!t.is_unstable(first.value)) {
      at += first.num_bytes;
      continue;
    }
    size_t begin = at;
    if (begin > done) {  // Back to the stable character.
      do --begin;
      while ((static_cast<uint8_t>(text[begin]) & 0xC0U) == 0x80);
    }
    while (at < text.size()) {
      const CodePoint next = decode_utf8(text.substr(at));
      if (!t.is_unstable(next.value)) break;
      at += next.num_bytes;
    }
    if (!changed) scratch.clear();
    changed = true;
    scratch += text.substr(done, begin - done);
    normalize_segment(t, text.substr(begin, at - begin), scratch);
    done = at;
  }
  if (!changed) return text;
  scratch += text.substr(done);
  return scratch;
}

}  // namespace atl::text
