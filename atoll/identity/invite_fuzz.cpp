// A word of any bytes, and one with any bytes in it whose checksum is right.
#include <algorithm>
#include <cstdint>
#include <string>

#include "atoll/base/base64.h"
#include "atoll/base/check.h"
#include "atoll/base/hash.h"
#include "atoll/identity/invite.h"

namespace {

void read(const std::string& word) {
  const auto invite = atl::identity::invite_in(word);
  if (invite) ATOLL_CHECK(atl::identity::word_of(*invite) == word);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  const atl::Digest digest = atl::Sha256().update("atoll1.").update(text).finish();
  std::string word =
      atl::to_base64(text + std::string(reinterpret_cast<const char*>(digest.data()), 4));
  std::ranges::replace(word, '+', '-');
  std::ranges::replace(word, '/', '_');
  word.erase(std::min(word.find('='), word.size()));
  read("atoll1." + word);
  return 0;
}
