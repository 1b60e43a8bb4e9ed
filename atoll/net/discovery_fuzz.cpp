// Any bytes as a datagram of discovery: what is taken is written the same, and is a question or an
// answer; of no run but the one that it names.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "atoll/base/check.h"
#include "atoll/net/discovery.h"

namespace {

/// What is taken, if it is.
void read(std::span<const std::byte> bytes) {
  using namespace atl::net;
  const auto notice = decode_notice(bytes);
  if (!notice) return;
  ATOLL_CHECK((notice->kind == NoticeKind::kQuestion) == (notice->port == 0));
  ATOLL_CHECK(std::ranges::equal(encode(*notice), bytes));
  ATOLL_CHECK(!is_about(*notice, "a run that nobody has heard of"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  // Beginnings that are right, so that the rest is looked at too.
  const auto good = atl::net::encode(
      atl::net::notice_of(atl::net::NoticeKind::kQuestion, 0, size, "fingerprint"));
  for (const size_t kept : {size_t{4}, size_t{5}, size_t{6}, size_t{8}}) {
    atl::Bytes mixed(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(kept));
    mixed.insert(mixed.end(), bytes.begin(), bytes.end());
    read(mixed);
    mixed.resize(atl::net::kNoticeBytes);
    read(mixed);
  }
  return 0;
}
