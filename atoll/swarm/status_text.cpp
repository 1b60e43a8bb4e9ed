// The status of a run as `atoll status` shows it.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "atoll/base/progress.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/status.h"

namespace atl::swarm {
namespace {

constexpr size_t kShownEvents = 5;

template <typename T>
std::string or_dash(const std::optional<T>& value, auto&& text) {
  return value ? text(*value) : std::string("-");
}

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string head(const RunStatus& run) {
  std::string text = fmt::format("run {}: {}", printable(run.run), name_of(run.state));
  if (run.state == RunState::kGathering) {
    text += fmt::format(", {} of {} islands are here", run.live, run.wanted);
  } else if (run.round) {
    text += fmt::format(", round {}, step {}{}, {} tokens committed", *run.round, run.step,
                        run.steps ? fmt::format(" of {}", *run.steps) : "",
                        format_count(static_cast<double>(run.committed_tokens)));
  } else {
    text += ", no round committed yet";
  }
  text += fmt::format("\nup {}", format_duration(run.uptime_s));
  if (run.rounds_per_minute) text += fmt::format(", {:.1f} rounds/min", *run.rounds_per_minute);
  if (run.seconds_left) text += fmt::format(", about {} left", format_duration(*run.seconds_left));
  if (run.round) {
    text += fmt::format("\n{} live, {} in the last commit, {} of their tokens averaged", run.live,
                        run.participating, or_dash(run.averaged_share, percent));
  }
  return text + "\n";
}

std::string island_table(const RunStatus& run) {
  size_t width = 6;
  for (const IslandStatus& island : run.islands) width = std::max(width, island.name.size());
  std::string text = fmt::format("\n{:<{}}  {:<8} {:>8} {:>8} {:>8} {:>9} {:>6} {:>8} {:>6}  {}\n",
                                 "island", width, "state", "step", "loss", "tokens/s", "committed",
                                 "round", "heard", "waits", "address");
  for (const IslandStatus& island : run.islands) {
    text += fmt::format(
        "{:<{}}  {:<8} {:>8} {:>8} {:>8} {:>9} {:>6} {:>8} {:>6}  {}\n", printable(island.name),
        width, name_of(island.state), island.step,
        or_dash(island.loss, [](double loss) { return fmt::format("{:.4f}", loss); }),
        or_dash(island.tokens_per_s, format_count),
        format_count(static_cast<double>(island.tokens)),
        or_dash(island.last_round, [](int64_t round) { return fmt::format("{}", round); }),
        fmt::format("{:.1f} s", island.heard_s), or_dash(island.stall_share, percent),
        printable(island.address));
  }
  for (const IslandStatus& island : run.islands) {
    if (island.reason.empty()) continue;
    text += fmt::format("{}: {}\n", printable(island.name), printable(island.reason));
  }
  return text;
}

std::string link_table(const RunStatus& run) {
  std::string text;
  for (const IslandStatus& island : run.islands) {
    for (const LinkStatus& link : island.links) {
      text += fmt::format(
          "{} -> {}: {}, there and back {}\n", printable(island.name), printable(link.to),
          or_dash(link.bytes_per_s, [](double rate) { return format_bytes(rate) + "/s"; }),
          or_dash(link.rtt_s, [](double rtt) { return fmt::format("{:.0f} ms", 1000 * rtt); }));
    }
  }
  return text.empty() ? text : "\n" + text;
}

std::string event_list(const RunStatus& run) {
  std::string text;
  const size_t count = std::min(kShownEvents, run.events.size());
  for (auto event = run.events.end() - static_cast<std::ptrdiff_t>(count);
       event != run.events.end(); ++event) {
    std::string when = format_duration(event->time_s);
    if (run.started_at) {
      const auto time =
          static_cast<std::time_t>(std::clamp(*run.started_at + event->time_s, 0.0, 1e11));
      when = fmt::format("{:%H:%M:%S}", fmt::localtime(time));
    }
    text += fmt::format("{}  {}\n", when, printable(event->line));
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string to_text(const RunStatus& status) {
  std::string text = head(status);
  if (!status.alarm.empty()) text += fmt::format("ALARM: {}\n", printable(status.alarm));
  if (!status.islands.empty()) text += island_table(status);
  return text + link_table(status) + event_list(status);
}

}  // namespace atl::swarm
