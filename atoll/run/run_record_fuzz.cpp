// Records of strangers: read or refused with an InputError; what is read can be simulated, on a
// line without end and on a slow one, and waits longer on the slow one.
#include <cmath>
#include <cstdint>
#include <string>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/run/run_record.h"

namespace atl::run {
namespace {

void try_records(const std::string& steps, const std::string& rounds) {
  try {
    std::vector<IslandRecord> islands;
    for (const char* name : {"a", "b"}) {
      islands.push_back({.name = name,
                         .where = name,
                         .steps = parse_steps(steps, "metrics.jsonl"),
                         .rounds = parse_rounds(rounds, "rounds.jsonl")});
    }
    const laws::RecordedRun run = recorded_run(islands, {.method = "diloco"});
    const std::vector<laws::SimulatedIsland> lines(run.islands.size());
    const double fast = simulate(run, lines, 1e6).utilisation();
    const double slow = simulate(run, lines, 1e-6).utilisation();
    ATOLL_CHECK(std::isfinite(fast) && fast <= 1 + 1e-9 && slow >= 0 && slow <= fast + 1e-9);
    ATOLL_CHECK(std::isfinite(measured(run).utilisation()));
  } catch (const InputError&) {
  }
}

/// Numbers made of the bytes, so that whole files get through.
void try_made(const uint8_t* data, size_t size) {
  std::string steps;
  std::string rounds;
  int64_t step = 0;
  for (size_t i = 0; i + 6 <= size && i < 240; i += 6) {
    step += data[i] % 4;
    const std::string at = std::to_string(step);
    const std::string spent = std::to_string(i * 100 + data[i + 1]);
    steps += R"({"step":)" + at + R"(,"began_at":)" + std::to_string(data[i + 2] / 200) +
             R"(,"seconds":{"computing":)" + spent + R"(,"handling":0,"waiting":)" + spent +
             R"(e-3,"validation":0,"checkpoints":0}})" + "\n";
    rounds += R"({"step":)" + std::to_string(step + data[i + 3] % 3) + R"(,"sent":)" + at +
              R"(,"round":)" + std::to_string(i) +
              R"(,"fragment":0,"values":9,"codec":"fp32","members":["a","b"],"bytes_sent":)" +
              std::to_string(data[i + 4]) + R"(e3,"bytes_received":)" +
              std::to_string(data[i + 5]) + R"(e3,"exchange_ms":1,"prepare_ms":0})" + "\n";
  }
  try_records(steps, rounds);
}

}  // namespace
}  // namespace atl::run

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t middle = input.find("\n\n");
  if (middle != std::string::npos) {
    atl::run::try_records(input.substr(0, middle + 1), input.substr(middle + 2));
  }
  atl::run::try_records(input, input);
  atl::run::try_made(data, size);
  return 0;
}
