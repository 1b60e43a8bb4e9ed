#pragma once
// HTTP/1.1 as bytes: requests read as they trickle in, replies' heads written. Pure; what comes is
// a stranger's, so every length has a bound. Of one thread.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::net {

/// As it was sent.
struct HttpMessage {
  std::string method;
  std::string path;                           // Percent signs decoded, without the query.
  std::map<std::string, std::string> fields;  // Names in small letters.
  std::string body;
  bool is_version_1_0 = false;  // Whose readers know no chunks.
  bool keeps_alive = true;      // Another request may follow.

  /// Empty where there is none.
  const std::string& field(const std::string& name) const;
};

class HttpReader {
 public:
  struct Limits {
    size_t head_bytes = size_t{16} << 10;
    size_t body_bytes = 0;
  };
  enum class State : uint8_t { kMore, kWhole, kBad };

  explicit HttpReader(Limits limits) : limits_(limits) {}

  /// Bytes that came; not after a bad request. Of more than one request the later ones wait.
  State add(std::string_view bytes);
  State state() const { return state_; }
  /// What was read when it is whole; afterwards the next one begins, which may be whole already.
  HttpMessage take();
  /// Whether a request has begun.
  bool has_begun() const { return phase_ != Phase::kHead || !buffer_.empty(); }
  /// True once, when the client waits for leave to send its body.
  bool must_say_continue();
  /// Of a bad one: the status to answer with, and why.
  int status() const { return status_; }
  const std::string& fault() const { return fault_; }

 private:
  enum class Phase : uint8_t { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer };

  void go_on();
  /// False where more bytes are needed, or nothing more is wanted.
  bool step();
  bool read_head();
  bool read_counted();
  bool read_chunk_size(std::string_view line);
  void read_first_line(std::string_view line);
  void read_field(std::string_view line);
  void begin_body();
  /// The next line without its end; false where it is not whole.
  bool next_line(std::string_view& line, size_t most);
  bool bad(int status, std::string fault);

  const Limits limits_;
  State state_ = State::kMore;
  Phase phase_ = Phase::kHead;
  HttpMessage message_;
  std::string buffer_;
  size_t used_ = 0;  // Of the buffer: what was read of it.
  size_t rest_ = 0;  // Bytes that the body or chunk lacks.
  bool wants_continue_ = false;
  int status_ = 0;
  std::string fault_;
};

/// "OK" for 200.
std::string_view http_reason(int status);

/// The first lines of a reply, with the empty one that ends them.
std::string http_head(int status, const std::vector<std::pair<std::string, std::string>>& fields);

/// A part of a body whose length is not known before; an empty one ends it.
std::string http_chunk(std::string_view part);

}  // namespace atl::net
