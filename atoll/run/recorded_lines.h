#pragma once
// What a run's records tell of its lines and of what went over them, for its simulation.
// LibTorch-free.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/laws/utilisation.h"
#include "atoll/run/run_record.h"

namespace atl::run {

/// What the run is simulated on.
struct Lines {
  std::vector<laws::SimulatedIsland> islands;
  double gbps = 0;           // Of a line of 1.
  double payload_share = 1;  // Of that what the program itself may send.
  std::string source;        // "given", "link_rate" or "recorded".

  double payload_gbps() const { return gbps * payload_share; }
};

/// Lines as quick as the quickest round of each island was. Throws UsageError where none tells.
Lines recorded_lines(const RunRecord& record);

/// What the islands whose records are here sent, and how, in rounds of two members or more that had
/// the codec of the first such (CocktailSGD's last one is exact). Means of an island in a round.
struct Traffic {
  double sent = 0;  // Bytes.
  double received = 0;
  double values = 0;
  double encoded = 0;  // Values whose encoding left, each copy counted: members come and go.
  int64_t num_rounds = 0;
  std::string codec;

  double copies() const { return values > 0 ? encoded / values : 0; }
  double bits_per_value() const { return encoded > 0 ? 8 * sent / encoded : 0; }
};

Traffic traffic_of(const RunRecord& record);

}  // namespace atl::run
