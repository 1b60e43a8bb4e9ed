#include "atoll/text/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "atoll/text/utf8.h"

namespace atl::text {
namespace {

bool is_line_end(uint32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

uint32_t last_character(std::string_view text, size_t& size) {
  size = 1;
  while (size < text.size() && (static_cast<uint8_t>(text[text.size() - size]) & 0xc0) == 0x80) {
    ++size;
  }
  return decode_utf8(text.substr(text.size() - size)).value;
}

std::string reversed(std::string_view text) { return {text.rbegin(), text.rend()}; }

}  // namespace

bool is_python_space(uint32_t code) {
  if (code < 128) return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; }));
}

size_t byte_of_character(std::string_view text, size_t character) {
  size_t at = 0;
  for (; character > 0 && at < text.size(); --character) {
    ++at;
    while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) ++at;
  }
  return at;
}

std::vector<uint32_t> characters(std::string_view text) {
  std::vector<uint32_t> codes;
  while (!text.empty()) {
    const CodePoint character = decode_utf8(text);
    codes.push_back(character.value);
    text.remove_prefix(character.num_bytes);
  }
  return codes;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return kNowhere;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (!found) return kNowhere;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view part) {
  const size_t found = find_text(reversed(text), reversed(part));
  return found == kNowhere ? kNowhere : text.size() - found - part.size();
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  std::vector<uint32_t> set = chars ? characters(*chars) : std::vector<uint32_t>();
  std::ranges::sort(set);
  const auto goes = [&](uint32_t code) {
    return chars ? std::ranges::binary_search(set, code) : is_python_space(code);
  };
  while (static_cast<int>(side) & 1 && !text.empty()) {
    const CodePoint first = decode_utf8(text);
    if (!goes(first.value)) break;
    text.remove_prefix(first.num_bytes);
  }
  while (static_cast<int>(side) & 2 && !text.empty()) {
    size_t size = 0;
    if (!goes(last_character(text, size))) break;
    text.remove_suffix(size);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t max_splits) {
  std::vector<std::string_view> parts;
  const auto may_split = [&] { return max_splits < 0 || std::ssize(parts) < max_splits; };
  if (separator) {
    size_t from = 0;
    while (may_split()) {
      const size_t found = find_text(text, *separator, from);
      if (found == kNowhere) break;
      parts.push_back(text.substr(from, found - from));
      from = found + separator->size();
    }
    parts.push_back(text.substr(from));
    return parts;
  }
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (!may_split()) {
      parts.push_back(text);  // With the white space behind it.
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint character = decode_utf8(text.substr(end));
      if (is_python_space(character.value)) break;
      end += character.num_bytes;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text,
                                          std::optional<std::string_view> separator,
                                          int64_t max_splits) {
  std::vector<std::string_view> parts;
  if (separator) {  // The mirrored text from the left: one pass, however many parts.
    const std::string mirrored = reversed(text);
    for (const std::string_view part : split(mirrored, reversed(*separator), max_splits)) {
      const auto begin = static_cast<size_t>(part.data() - mirrored.data());
      parts.push_back(text.substr(text.size() - begin - part.size(), part.size()));
    }
    std::ranges::reverse(parts);
    return parts;
  }
  text = strip(text, Side::kRight);
  while (!text.empty()) {
    if (max_splits >= 0 && std::ssize(parts) >= max_splits) {
      parts.push_back(text);  // With the white space before it.
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t size = 0;
      if (is_python_space(last_character(text.substr(0, begin), size))) break;
      begin -= size;
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), Side::kRight);
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint character = decode_utf8(text.substr(at));
    const size_t end = at;
    at += character.num_bytes;
    if (!is_line_end(character.value)) continue;
    if (character.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

size_t count_text(std::string_view text, std::string_view part) {
  if (part.empty()) return count_characters(text) + 1;
  size_t count = 0;
  for (size_t at = find_text(text, part); at != kNowhere;
       at = find_text(text, part, at + part.size())) {
    ++count;
  }
  return count;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t max_count) {
  std::string result;
  size_t done = 0;
  for (int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    if (from.empty()) {
      // Before the first character, then behind each.
      const size_t next = count == 0 ? 0 : done + byte_of_character(text.substr(done), 1);
      if (count > 0 && done == text.size()) break;
      result += text.substr(done, next - done);
      result += to;
      done = next;
      continue;
    }
    const size_t found = find_text(text, from, done);
    if (found == kNowhere) break;
    result += text.substr(done, found - done);
    result += to;
    done = found + from.size();
  }
  result += text.substr(done);
  return result;
}

}  // namespace atl::text
