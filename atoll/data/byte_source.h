#pragma once
// The bytes of a file as they were before it was compressed: plain, gzip (of any number of members)
// or zstd (of any number of frames), told apart by their first bytes. They are unpacked as they are
// read, so memory does not grow with the file. One owner thread.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::data {

enum class Compression { kNone, kGzip, kZstd };

/// What a file holds is not what it should be, whatever reads it: truncated, damaged, or not
/// compressed as its name says. A file that cannot be read at all is a plain InputError.
class DamagedFile : public InputError {
 public:
  using InputError::InputError;
};

/// What the end of a file's name says: ".gz", ".zst" or neither.
Compression compression_of(std::string_view name);
/// The name without that end: "a.jsonl.zst" -> "a.jsonl".
std::string_view without_compression(std::string_view name);

class ByteSource {
 public:
  /// Where the packed bytes come from: fills the span as far as it can, 0 at the end.
  using Read = std::function<size_t(std::span<std::byte>)>;

  /// Throws InputError when the file cannot be read, or is not compressed as its name says.
  explicit ByteSource(const std::filesystem::path& file);
  /// The same from any bytes; `name` appears in messages.
  ByteSource(Read read, std::string name);
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;

  /// How many bytes were put to the front of `out`, which is not empty; 0 at the end. Throws
  /// InputError where the file is truncated, damaged, followed by anything else, or needs more
  /// than 128 MiB of memory to unpack; the message says how much of it could be read.
  size_t read(std::span<char> out);

  Compression compression() const;
  const std::string& name() const;
  /// Bytes of the file itself that were used so far.
  int64_t packed_offset() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::data
