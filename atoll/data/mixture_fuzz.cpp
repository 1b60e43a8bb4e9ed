// mixture.json from strangers: read or refused with an InputError; what is read is written back.
#include <cstdint>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/mixture.h"

namespace atl::data {
namespace {

void try_mixture(std::string_view text) {
  try {
    const std::string again = format_mixture(parse_mixture(text, "fuzz"));
    ATOLL_CHECK(format_mixture(parse_mixture(again, "again")) == again);
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  atl::data::try_mixture(text);
  std::string mixture = atl::data::format_mixture(
      {{.path = "a", .weight = 0.1, .digest = "x"}, {.path = "b", .weight = 7, .digest = "y"}});
  ATOLL_CHECK(atl::data::parse_mixture(mixture, "own").size() == 2);
  if (size >= 2) mixture[(data[0] * 256U + data[1]) % mixture.size()] = text.back();
  atl::data::try_mixture(mixture);
  return 0;
}
