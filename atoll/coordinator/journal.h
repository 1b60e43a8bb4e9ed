#pragma once
// The coordinator's book on disk.
#include <filesystem>

#include "atoll/base/record_log.h"
#include "atoll/coordinator/book.h"

namespace atl::swarm {

class Journal {
 public:
  /// Opens or makes it, alone. Throws InputError when another process has it open, when it is
  /// damaged or cannot be written.
  explicit Journal(const std::filesystem::path& path);

  /// As all that was appended makes it.
  const Book& book() const { return book_; }
  /// Durable on return. Throws InputError when the disk is full or fails.
  void append(const Record& record);

 private:
  RecordLog log_;
  Book book_;
  size_t short_bytes_ = 0;  // What it was when it was made short last.
};

}  // namespace atl::swarm
