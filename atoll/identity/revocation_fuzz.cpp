// A list of any bytes, and a good one with some of its bytes changed: what is read is written as
// the same bytes, since there is one encoding.
#include <cstdint>

#include "atoll/base/check.h"
#include "atoll/identity/revocation.h"

namespace {

using atl::identity::Revocation;
using atl::identity::RevocationList;

void read(std::span<const std::byte> bytes) {
  const auto list = atl::identity::decode_revocation_list(bytes);
  if (list) ATOLL_CHECK(std::ranges::equal(atl::identity::encode(*list), bytes));
}

RevocationList good_list() {
  RevocationList list{.run = std::string(64, 'a'), .number = 3, .entries = {}};
  list.add({.kind = Revocation::Kind::kSerial, .subject = "0aff", .when = {}});
  list.add({.kind = Revocation::Kind::kPeer, .subject = "anna", .when = {}});
  list.add({.kind = Revocation::Kind::kPeer, .subject = "bert", .when = {}});
  return list;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  atl::Bytes changed = encode(good_list());
  for (size_t i = 0; i + 1 < size && i < 8; i += 2) {
    changed[data[i] % changed.size()] ^= std::byte{data[i + 1]};
  }
  read(changed);
  static const std::string
      authority;  // No certificate: the envelope is read, and nothing believed.
  ATOLL_CHECK(!atl::identity::verify(bytes, authority));
  return 0;
}
