// A URI of any bytes, and one whose end is any bytes.
#include <cstdint>
#include <string>

#include "atoll/base/check.h"
#include "atoll/identity/peer.h"

namespace {

void read(const std::string& uri) {
  const auto peer = atl::identity::peer_in(uri);
  if (peer) ATOLL_CHECK(atl::identity::uri_of(*peer) == uri);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read("atoll://" + text);
  read("atoll://" + std::string(64, 'a') + "/island/" + text);
  return 0;
}
