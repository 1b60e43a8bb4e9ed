#include "atoll/coordinator/journal.h"

#include <algorithm>
#include <vector>

namespace atl::swarm {
namespace {

constexpr size_t kMinBytes = size_t{4} << 20;  // Less is not worth the trouble.

}  // namespace

Journal::Journal(const std::filesystem::path& path)
    : log_(path), book_(read_book(log_.take_found())), short_bytes_(log_.size_bytes()) {}

void Journal::append(const Record& record) {
  book_.apply(record);
  if (log_.size_bytes() < std::max(kMinBytes, 2 * short_bytes_)) return log_.append(encode(record));
  const std::vector<Bytes> all = {book_.contents()};
  log_.replace(all);
  short_bytes_ = log_.size_bytes();
}

}  // namespace atl::swarm
