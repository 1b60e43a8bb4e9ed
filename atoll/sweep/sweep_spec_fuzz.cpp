// What a stranger's SWEEP.toml may do: be refused, or be a sweep whose plan ends.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/sweep/sweep_plan.h"

namespace {

void try_sweep(std::string_view text) {
  using namespace atl::sweep;
  try {
    const SweepSpec spec = parse_sweep(text, "fuzz.toml");
    const PlanRules rules{.sequence_length = 32,
                          .obstacle = [](const SweepPoint&) { return std::string(); }};
    check_plan(spec, rules, "fuzz.toml");
    size_t num_points = 0;
    for (const Grid& grid : spec.grids) num_points += named_points(grid).size() * grid.seeds.size();
    if (num_points > 1000) return;
    plan_sweep(spec, rules, [](const SweepPoint&) { return std::nullopt; }, /*pretend=*/true);
  } catch (const atl::InputError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  try_sweep(input);
  // Numbers made of the bytes, so that whole sweeps get through.
  if (size < 6) return 0;
  constexpr const char* kSearches[] = {"grid", "descent", "halving"};
  std::string text = "[sizes.a]\n[sizes.b]\n[[grid]]\nname = 'g'\nsync_every = 3\nsearch = '";
  text += kSearches[data[0] % 3];
  text += "'\nreplicas = [" + std::to_string(data[1] % 5 + 1) + ", 0]\nouter_lr = [0.1, 0." +
          std::to_string(data[2]) + "]\nbatch_tokens = [" + std::to_string(32 * (data[3] + 1)) +
          ", 160]\nlr = [1e-3, " + std::to_string(data[4] + 1) + "e-" +
          std::to_string(data[5] % 12) + "]\n";
  try_sweep(text + input.substr(6));
  try_sweep(text);
  return 0;
}
