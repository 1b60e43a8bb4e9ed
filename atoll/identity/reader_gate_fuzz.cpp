// A header "Authorization" of any bytes, and what follows each of its schemes.
#include <cstdint>
#include <string>

#include "atoll/base/base64.h"
#include "atoll/base/check.h"
#include "atoll/identity/reader_gate.h"

namespace {

void read(const std::string& value) {
  const auto token = atl::identity::token_in(value);
  ATOLL_CHECK(token.text().size() <= value.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read("Bearer " + text);
  read("Basic " + text);
  read("Basic " + atl::to_base64(text));
  return 0;
}
