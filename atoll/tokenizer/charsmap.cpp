#include "atoll/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {
namespace {

// A unit of the trie, as Darts-clone lays it out: 31 bits of value, or a label of 8 bits with a
// flag that tells whether it is one, whether a leaf follows, and where the children are.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

/// A cluster of characters (Unicode's annex 29). Those of Unicode 14 are \X; behind them come the
/// marks that Unicode 16 has besides. Only clusters of a few bytes matter here.
constexpr const char* kCluster =
    R"(\X(?:(?<!\p{Cc})[\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241})"
    R"(\x{113b8}-\x{113d0}\x{113d2}\x{113e1}\x{113e2}\x{11f00}\x{11f01}\x{11f03})"
    R"(\x{11f34}-\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f}\x{1e08f})"
    R"(\x{1e4ec}-\x{1e4ef}\x{1e5ee}\x{1e5ef}][\p{M}\x{200d}]*)*)";

/// Two of these are a flag.
bool is_half_flag(std::string_view text) {
  return text.size() >= 4 && text.starts_with("\xf0\x9f\x87") &&
         static_cast<uint8_t>(text[3]) >= 0xa6;
}

/// Where a cluster of characters certainly ends, not before the first character's: between two of
/// ASCII, but for a line's end of two; and between flags, which Oniguruma would count from the
/// first.
size_t boundary(std::string_view text) {
  constexpr size_t kManyHalves = 32;
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 128; };
  size_t num_halves = 0;
  size_t half_ends = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (at >= half_ends) {
      const bool is_half = is_half_flag(text.substr(at));
      if (num_halves == kManyHalves && is_half) return at;
      num_halves = is_half ? num_halves + 1 : 0;
      if (is_half) half_ends = at + 4;
    }
    if (at == 0) continue;
    const bool is_between = is_ascii(text[at - 1]) && is_ascii(text[at]);
    if (is_between && !(text[at - 1] == '\r' && text[at] == '\n')) return at;
  }
  return text.size();
}

}  // namespace

Charsmap::Charsmap(std::string_view table) : cluster_(kCluster) {
  uint32_t num_bytes = 0;
  if (table.size() < sizeof(num_bytes)) throw InputError("the table of characters has no size");
  std::memcpy(&num_bytes, table.data(), sizeof(num_bytes));
  table.remove_prefix(sizeof(num_bytes));
  if (num_bytes > table.size() || num_bytes % sizeof(uint32_t) != 0 || num_bytes == 0) {
    throw InputError("the table of characters is cut off");
  }
  units_.resize(num_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data(), num_bytes);
  texts_ = table.substr(num_bytes);
  if (text::valid_utf8_prefix(texts_) != texts_.size()) {
    throw InputError("the table of characters has texts that are not UTF-8");
  }
  constexpr size_t kMostBytes = 256;  // Unicode's longest are 33.
  size_t end = 0;
  for (size_t begin = 0; begin < texts_.size(); begin = end + 1) {
    end = std::min(texts_.find('\0', begin), texts_.size());
    if (end - begin > kMostBytes) {
      throw InputError("the table of characters has texts that are too long");
    }
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view part) const {
  size_t at = offset_of(units_[0]);
  for (const char c : part) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return {};
    at ^= byte;
    if (at >= units_.size() || label_of(units_[at]) != byte) return {};
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (at >= units_.size()) return {};
    if (!has_leaf(unit)) continue;
    const uint32_t begin = value_of(units_[at]);
    const bool is_inside =
        begin < texts_.size() && (static_cast<uint8_t>(texts_[begin]) & 0xC0) == 0x80;
    if (begin >= texts_.size() || is_inside) return std::string_view();
    return std::string_view(texts_.c_str() + begin);
  }
  return {};
}

void Charsmap::append_cluster(std::string_view cluster, std::string& out) const {
  constexpr size_t kMostAsOne = 5;
  if (cluster.size() <= kMostAsOne) {
    if (const auto found = find(cluster)) {
      out += *found;
      return;
    }
  }
  while (!cluster.empty()) {
    const std::string_view character = cluster.substr(0, text::decode_utf8(cluster).num_bytes);
    out += find(character).value_or(character);
    cluster.remove_prefix(character.size());
  }
}

std::string_view Charsmap::apply(std::string_view text, std::string& scratch) const {
  scratch.clear();
  while (!text.empty()) {
    const size_t size = boundary(text);
    cluster_.each_match(text.substr(0, size), [&](size_t begin, size_t end) {
      append_cluster(text.substr(begin, end - begin), scratch);
    });
    text.remove_prefix(size);
    for (; boundary(text) == 1; text.remove_prefix(1)) append_cluster(text.substr(0, 1), scratch);
  }
  return scratch;
}

}  // namespace atl::tokenizer
