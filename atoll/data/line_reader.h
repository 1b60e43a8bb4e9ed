#pragma once
// The lines of a ByteSource, one at a time, however long the file. One owner thread.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/byte_source.h"

namespace atl::data {

class LineReader {
 public:
  /// Lines of more than `max_bytes` are refused.
  LineReader(ByteSource source, int64_t max_bytes)
      : source_(std::move(source)), max_bytes_(max_bytes) {}

  /// Sets `line` to the next line with its '\n', which the last one may lack; false at the end.
  /// Throws InputError as ByteSource does, and at a line that is too long.
  bool next(std::string& line);

  const ByteSource& source() const { return source_; }
  /// Of the line given last, from 1.
  int64_t number() const { return number_; }
  /// Bytes before it, unpacked.
  int64_t offset() const { return offset_; }

 private:
  ByteSource source_;
  int64_t max_bytes_;
  std::vector<char> buffer_ = std::vector<char>(size_t{1} << 18);
  std::string_view rest_;  // Of the buffer.
  int64_t number_ = 0;
  int64_t offset_ = 0;
  int64_t end_ = 0;  // Of the line given last.
};

}  // namespace atl::data
