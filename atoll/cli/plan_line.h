#pragma once
// The line that `atoll plan --measure` measures: in the clear, or, where a run is encrypted, as one
// of its members. Its coordinator answers no stranger.
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/swarm/link_measurement.h"

namespace atl::cli {

struct LineOptions {
  std::string
      coordinator;  // HOST:PORT, or an invite; empty: of `run`, or the line is not measured.
  std::string run;  // The folder of a member, or of who becomes one by the invite.
  bool insecure = false;
};

/// `name` is for who becomes a member. Nothing where no line is asked for. Throws UsageError,
/// InputError.
std::optional<swarm::MeasuredLink> measure_line(const LineOptions& options, const std::string& name,
                                                const Clock& clock);

}  // namespace atl::cli
