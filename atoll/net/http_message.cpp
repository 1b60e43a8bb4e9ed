#include "atoll/net/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace atl::net {
namespace {

constexpr size_t kMaxLineBytes = 256;  // Of a chunk's size, with the extensions nobody uses.

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

std::string small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<size_t> number_in(std::string_view text, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = text[i] == '%' ? number_in(text.substr(i + 1, 2), 16) : std::nullopt;
    if (byte && i + 2 < text.size()) {
      out += static_cast<char>(*byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

const std::string& HttpMessage::field(const std::string& name) const {
  static const std::string kNone;
  const auto found = fields.find(name);
  return found == fields.end() ? kNone : found->second;
}

HttpReader::State HttpReader::add(std::string_view bytes) {
  buffer_ += bytes;
  go_on();
  return state_;
}

void HttpReader::go_on() {
  while (state_ == State::kMore && step()) {
  }
  buffer_.erase(0, used_);
  used_ = 0;
}

bool HttpReader::step() {
  std::string_view line;
  switch (phase_) {
    case Phase::kHead:
      return read_head();
    case Phase::kBody:
      if (!read_counted()) return false;
      state_ = State::kWhole;
      return false;
    case Phase::kChunkSize:
      return next_line(line, kMaxLineBytes) && read_chunk_size(line);
    case Phase::kChunk:
      if (!read_counted()) return false;
      phase_ = Phase::kChunkEnd;
      return true;
    case Phase::kChunkEnd:
      if (!next_line(line, 0)) return false;
      phase_ = Phase::kChunkSize;
      return true;
    case Phase::kTrailer:  // Fields behind the chunks: nobody needs one.
      if (!next_line(line, kMaxLineBytes)) return false;
      if (!line.empty()) return bad(400, "a chunked body has no trailer here");
      state_ = State::kWhole;
      return false;
  }
  return false;
}

bool HttpReader::read_head() {
  while (buffer_.compare(used_, 2, "\r\n") == 0) used_ += 2;  // Some clients send one too many.
  const size_t end = buffer_.find("\r\n\r\n", used_);
  const size_t size = (end == std::string::npos ? buffer_.size() : end) - used_;
  // A part of the empty line may be there already.
  if (size > limits_.head_bytes + (end == std::string::npos ? 3 : 0)) {
    return bad(431, "the request's head is too long");
  }
  if (end == std::string::npos) return false;
  std::string_view rest = std::string_view(buffer_).substr(used_, size);
  used_ = end + 4;
  for (bool is_first = true; !rest.empty() && state_ == State::kMore; is_first = false) {
    const size_t line_end = std::min(rest.find("\r\n"), rest.size());
    const std::string_view line = rest.substr(0, line_end);
    rest.remove_prefix(std::min(line_end + 2, rest.size()));
    is_first ? read_first_line(line) : read_field(line);
  }
  if (state_ == State::kMore) begin_body();
  return state_ == State::kMore;
}

void HttpReader::read_first_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = line.rfind(' ');
  if (first == std::string_view::npos || first == second) {
    bad(400, "the request's first line is not METHOD PATH VERSION");
    return;
  }
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  message_.method = line.substr(0, first);
  message_.is_version_1_0 = version == "HTTP/1.0";
  message_.keeps_alive = !message_.is_version_1_0;
  if (!message_.is_version_1_0 && version != "HTTP/1.1") {
    bad(505, "only HTTP/1.1 is spoken here");
  } else if (!is_token(message_.method) || !target.starts_with('/') ||
             target.find(' ') != std::string_view::npos) {
    bad(400, "the request's first line is not METHOD PATH VERSION");
  }
  message_.path = percent_decoded(target.substr(0, target.find('?')));
}

void HttpReader::read_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) ||
      line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) {
    bad(400, "a header is not NAME: VALUE");
    return;
  }
  const std::string name = small_letters(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  const auto [place, is_new] = message_.fields.emplace(name, value);
  if (is_new) return;
  // Two that differ on where the request ends would let one hide in another.
  if (name == "content-length" || name == "transfer-encoding" || name == "authorization") {
    bad(400, "the header '" + name + "' is there twice");
    return;
  }
  place->second += ", ";
  place->second += value;
}

void HttpReader::begin_body() {
  const std::string connection = small_letters(message_.field("connection"));
  if (connection == "close") message_.keeps_alive = false;
  if (connection == "keep-alive") message_.keeps_alive = true;
  const std::string coding = small_letters(message_.field("transfer-encoding"));
  const std::string& length = message_.field("content-length");
  if (!coding.empty()) {
    if (coding != "chunked" || !length.empty() || message_.is_version_1_0) {
      bad(400, "a body is chunked or has a Content-Length");
      return;
    }
    if (limits_.body_bytes == 0) {
      bad(413, "a request has no body here");
      return;
    }
    phase_ = Phase::kChunkSize;
  } else {
    const auto size = number_in(length.empty() ? "0" : length, 10);
    if (!size) {
      bad(400, "Content-Length is no number");
      return;
    }
    if (*size > limits_.body_bytes) {
      bad(413, fmt::format("the request's body has {} bytes; {} are the most", *size,
                           limits_.body_bytes));
      return;
    }
    rest_ = *size;
    phase_ = Phase::kBody;
  }
  wants_continue_ = small_letters(message_.field("expect")) == "100-continue";
}

bool HttpReader::read_counted() {
  const size_t count = std::min(rest_, buffer_.size() - used_);
  message_.body.append(buffer_, used_, count);
  used_ += count;
  rest_ -= count;
  return rest_ == 0;
}

bool HttpReader::read_chunk_size(std::string_view line) {
  const auto size = number_in(trimmed(line.substr(0, line.find(';'))), 16);
  if (!size) return bad(400, "a chunk's size is no number");
  if (*size > limits_.body_bytes - message_.body.size()) {
    return bad(413, fmt::format("the request's body has more than {} bytes", limits_.body_bytes));
  }
  rest_ = *size;
  phase_ = rest_ == 0 ? Phase::kTrailer : Phase::kChunk;
  return true;
}

bool HttpReader::next_line(std::string_view& line, size_t most) {
  const size_t end = buffer_.find("\r\n", used_);
  const size_t size = (end == std::string::npos ? buffer_.size() : end) - used_;
  // A '\r' may be there already.
  if (size > most + (end == std::string::npos ? 1 : 0)) return bad(400, "a chunk is malformed");
  if (end == std::string::npos) return false;
  line = std::string_view(buffer_).substr(used_, size);
  used_ = end + 2;
  return true;
}

bool HttpReader::bad(int status, std::string fault) {
  state_ = State::kBad;
  status_ = status;
  fault_ = std::move(fault);
  return false;
}

HttpMessage HttpReader::take() {
  HttpMessage taken = std::exchange(message_, {});
  state_ = State::kMore;
  phase_ = Phase::kHead;
  wants_continue_ = false;
  go_on();
  return taken;
}

bool HttpReader::must_say_continue() {
  return std::exchange(wants_continue_, false) && state_ == State::kMore;
}

std::string_view http_reason(int status) {
  static const std::map<int, std::string_view> kReasons{{200, "OK"},
                                                        {400, "Bad Request"},
                                                        {401, "Unauthorized"},
                                                        {403, "Forbidden"},
                                                        {404, "Not Found"},
                                                        {405, "Method Not Allowed"},
                                                        {408, "Request Timeout"},
                                                        {413, "Content Too Large"},
                                                        {429, "Too Many Requests"},
                                                        {431, "Request Header Fields Too Large"},
                                                        {500, "Internal Server Error"},
                                                        {501, "Not Implemented"},
                                                        {503, "Service Unavailable"},
                                                        {505, "HTTP Version Not Supported"}};
  const auto found = kReasons.find(status);
  return found == kReasons.end() ? "Other" : found->second;
}

std::string http_head(int status, const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, http_reason(status));
  for (const auto& [name, value] : fields) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

std::string http_chunk(std::string_view part) {
  return fmt::format("{:x}\r\n{}\r\n", part.size(), part);
}

}  // namespace atl::net
