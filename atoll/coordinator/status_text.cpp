// The status of a run as `atoll status` shows it.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "atoll/base/progress.h"
#include "atoll/coordinator/status.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

constexpr size_t kShownEvents = 5;
constexpr double kOld = 10;  // Seconds; a status is published twice in each.

template <typename T>
std::string or_dash(const std::optional<T>& value, auto&& text) {
  return value ? text(*value) : std::string("-");
}

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string progress(const RunStatus& run) {
  if (run.state == RunState::kGathering && run.live == 0 && !run.servers.empty()) {
    return fmt::format("{} servers, no islands", run.servers.size());
  }
  if (run.state == RunState::kGathering) {
    return fmt::format("gathering, {} of {} islands are here", run.live, run.wanted);
  }
  if (!run.round) return fmt::format("{}, no round committed yet", name_of(run.state));
  return fmt::format("{}, round {}, step {}{}", name_of(run.state), *run.round, run.step,
                     run.steps ? fmt::format(" of {}", *run.steps) : "");
}

std::string alarm(const RunStatus& run) {
  if (run.age_s > kOld) {
    return fmt::format("this is {:.0f} s old: the coordinator does not move", run.age_s);
  }
  return printable(run.alarm);
}

std::string head(const RunStatus& run) {
  const std::string id = printable(run.run);
  std::string text = fmt::format(
      "run {}: {}", run.name.empty() ? id : fmt::format("{} ({})", printable(run.name), id),
      progress(run));
  if (run.round) {
    text += fmt::format(", {} tokens committed",
                        format_count(static_cast<double>(run.committed_tokens)));
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
    if (island.unreachable.empty()) continue;
    text += fmt::format("{}: others cannot call it at {}: {}\n", printable(island.name),
                        printable(island.address), printable(island.unreachable));
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

std::string way_table(const RunStatus& run) {
  std::string text;
  for (const RelayStatus& relay : run.relays) {
    text += fmt::format("relay {} at {}\n", printable(relay.name), printable(relay.address));
  }
  for (const WayStatus& way : run.ways) {
    if (way.islands.size() != 2) continue;
    const std::string how = way.way == "punched"
                                ? "directly, since they met at the relay " + way.relay
                            : way.way == "relayed" ? "through the relay " + way.relay
                                                   : "not at all";
    text += fmt::format("{} and {} reach each other {}\n", printable(way.islands[0]),
                        printable(way.islands[1]), printable(how));
  }
  return text.empty() ? text : "\n" + text;
}

std::string server_table(const RunStatus& run) {
  if (run.servers.empty()) return "";
  size_t width = 6;
  for (const ServerStatus& server : run.servers) width = std::max(width, server.name.size());
  std::string text =
      fmt::format("\n{:<{}}  {:<8} {:>12} {:>8} {:>10} {:>8}  {:<20} {}\n", "server", width,
                  "state", "layers", "sessions", "free", "layers/s", "model", "address");
  for (const ServerStatus& server : run.servers) {
    const std::string layers =
        server.first && server.last
            ? fmt::format("{}-{}/{}", *server.first, *server.last, server.layers)
            : fmt::format("-/{}", server.layers);
    text += fmt::format("{:<{}}  {:<8} {:>12} {:>8} {:>10} {:>8}  {:<20} {}\n",
                        printable(server.name), width, name_of(server.state), layers,
                        server.sessions, format_count(static_cast<double>(server.free_positions)),
                        or_dash(server.layers_per_s, format_count), printable(server.model),
                        printable(server.address));
  }
  return text;
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
  if (const std::string sentence = alarm(status); !sentence.empty()) {
    text += fmt::format("ALARM: {}\n", sentence);
  }
  if (!status.islands.empty()) text += island_table(status);
  return text + server_table(status) + link_table(status) + way_table(status) + event_list(status);
}

std::string to_line(const RunStatus& status) {
  std::string text = status.name.empty() ? "" : printable(status.name) + ": ";
  text += progress(status);
  if (status.round) {
    text += fmt::format(", {} live, {} in the last commit", status.live, status.participating);
  }
  if (status.rounds_per_minute) {
    text += fmt::format(", {:.1f} rounds/min", *status.rounds_per_minute);
  }
  if (status.seconds_left) text += fmt::format(", {} left", format_duration(*status.seconds_left));
  for (const IslandStatus& island : status.islands) {
    if (!island.loss || !island.tokens_per_s) continue;
    text += fmt::format(" | {} step {}, loss {:.4f}, {} tokens/s", printable(island.name),
                        island.step, *island.loss, format_count(*island.tokens_per_s));
  }
  const std::string sentence = alarm(status);
  return sentence.empty() ? text : text + " | ALARM: " + sentence;
}

}  // namespace atl::swarm
