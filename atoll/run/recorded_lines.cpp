#include "atoll/run/recorded_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "atoll/base/error.h"

namespace atl::run {
namespace {

/// Gbit/s that an island sent at least, by its quickest round; what the way and the coordinator
/// took is in it.
double recorded_gbps(const std::vector<RoundLine>& rounds) {
  double most = 0;
  for (const RoundLine& line : rounds) {
    const double sending_ms = line.exchange_ms - line.prepare_ms;
    if (sending_ms > 0) most = std::max(most, 8e-6 * line.bytes_sent / sending_ms);
  }
  return most;
}

/// The records of an island, or those that stand for it.
const IslandRecord& source_of(const RunRecord& record, const std::string& name) {
  const auto found = std::ranges::find(record.islands, name, &IslandRecord::name);
  return found == record.islands.end() ? record.islands.front() : *found;
}

}  // namespace

Lines recorded_lines(const RunRecord& record) {
  Lines lines{.source = "recorded"};
  std::vector<double> rates;
  for (const laws::RecordedIsland& island : record.run.islands) {
    const IslandRecord& source = source_of(record, island.name);
    rates.push_back(recorded_gbps(source.rounds));
    if (rates.back() > 0) continue;
    throw UsageError(fmt::format(
        "'{}' does not tell what its line carries; say it: --gbps, or --link-rate as it was",
        source.where));
  }
  lines.gbps = *std::ranges::max_element(rates);
  for (const double rate : rates) {
    lines.islands.push_back(
        {.up = rate / lines.gbps, .down = std::numeric_limits<double>::infinity()});
  }
  return lines;
}

Traffic traffic_of(const RunRecord& record) {
  Traffic out{.num_rounds = std::ssize(record.run.rounds), .codec = {}};
  double num_lines = 0;
  for (const IslandRecord& island : record.islands) {
    for (const RoundLine& line : island.rounds) {
      if (line.members.size() < 2) continue;
      if (out.codec.empty()) out.codec = line.codec;
      if (line.codec != out.codec) continue;
      const auto num_members = static_cast<double>(line.members.size());
      const double copies = gathers(island, line, record.config.sync)
                                ? num_members - 1
                                : 2 * (num_members - 1) / num_members;
      out.sent += line.bytes_sent;
      out.received += line.bytes_received;
      out.values += static_cast<double>(line.values);
      out.encoded += copies * static_cast<double>(line.values);
      num_lines += 1;
    }
  }
  for (double* sum : {&out.sent, &out.received, &out.values, &out.encoded}) *sum /= num_lines;
  return out;
}

}  // namespace atl::run
