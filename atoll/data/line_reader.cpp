#include "atoll/data/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"

namespace atl::data {

bool LineReader::next(std::string& line) {
  line.clear();
  offset_ = end_;
  while (line.empty() || line.back() != '\n') {
    if (rest_.empty()) rest_ = {buffer_.data(), source_.read(buffer_)};
    if (rest_.empty()) break;
    const size_t take = std::min(rest_.find('\n'), rest_.size() - 1) + 1;
    if (std::cmp_greater(line.size() + take, max_bytes_)) {
      throw InputError(fmt::format("'{}' line {} is longer than {} bytes", source_.name(),
                                   number_ + 1, max_bytes_));
    }
    line += rest_.substr(0, take);
    rest_.remove_prefix(take);
  }
  if (line.empty()) return false;
  ++number_;
  end_ += std::ssize(line);
  return true;
}

}  // namespace atl::data
