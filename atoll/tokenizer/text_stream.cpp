#include "atoll/tokenizer/text_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {
namespace {

/// Whether more bytes could make a character of these, with which a text ends.
bool may_become_character(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  // The bad sequence is the longest begin of a character: all of them, so far.
  return lead >= 0xc2 && lead <= 0xf4 && bytes.size() < size &&
         text::decode_utf8(bytes).num_bytes == bytes.size();
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw UsageError("a stop string is empty");
    if (text::valid_utf8_prefix(stop) != stop.size()) {
      throw UsageError("a stop string is not UTF-8");
    }
  }
}

std::string TextStream::add(std::string_view bytes) {
  if (is_stopped_) return "";
  pending_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  if (first == std::string::npos) return take(pending_.size() - num_held(), false);
  is_stopped_ = true;
  pending_.resize(first);
  return finish();
}

std::string TextStream::finish() { return take(pending_.size(), true); }

size_t TextStream::num_held() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, pending_.size()); size > held; --size) {
      if (pending_.ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  return held;
}

std::string TextStream::take(size_t size, bool all) {
  std::string text;
  std::string_view rest = std::string_view(pending_).substr(0, size);
  while (!rest.empty()) {
    const text::CodePoint character = text::decode_utf8(rest);
    if (!character.valid && !all && may_become_character(rest)) break;
    if (character.valid) {
      text += rest.substr(0, character.num_bytes);
    } else {
      text::append_utf8(text, 0xfffd);
    }
    rest.remove_prefix(character.num_bytes);
  }
  num_shown_bytes_ += size - rest.size();
  pending_.erase(0, size - rest.size());
  return text;
}

}  // namespace atl::tokenizer
