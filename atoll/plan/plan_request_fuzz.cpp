// Plans of strangers: read or refused with a UsageError; what is read is in range, and planned for
// or refused with an InputError.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/plan/plan.h"

namespace atl::plan {
namespace {

void try_plan(std::string_view text, bool plans) {
  try {
    const PlanRequest request = parse_plan(text, "fuzz");
    ATOLL_CHECK(!request.islands.empty());
    for (const PlannedIsland& island : request.islands) {
      ATOLL_CHECK(island.devices >= 1 && island.memory_bytes > 0 && island.bits_per_s() > 0);
      ATOLL_CHECK(std::isfinite(island.flops_per_s) && island.flops_per_s > 0);
    }
    if (!plans || request.islands.size() > 2) return;
    const Plan plan = make_plan(request, std::nullopt);
    for (const PlannedRun& run : plan.choices) {
      ATOLL_CHECK(std::isfinite(run.choice.wall_clock_s) && run.choice.loss > 0);
    }
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::plan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  atl::plan::try_plan(input, false);
  atl::plan::try_plan("[[island]]\ntflops = 1\nmemory = \"1GB\"\n" + input, false);
  if (size < 6 || size % 128 != 8) return 0;  // Each of these is searched.
  // Numbers made of the bytes.
  const auto number = [&](size_t i) {
    return std::to_string(data[i] % 9 + 1) + "e" + std::to_string(data[i] / 9 % 12);
  };
  atl::plan::try_plan("[[island]]\ntflops = " + number(0) + "\nmemory = \"" + number(1) +
                          "B\"\ndevices = " + std::to_string(data[2] % 9 + 1) +
                          "\n[goal]\nparams = " + number(3) + "\ntime = \"" + number(4) +
                          "s\"\ntokens_per_param = " + std::to_string(data[5] % 99 + 1),
                      true);
  return 0;
}
