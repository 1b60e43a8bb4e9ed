// The text that Prometheus reads (exposition format 0.0.4): a HELP and a TYPE line for each metric,
// then its samples.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <utility>

#include "atoll/coordinator/status.h"

namespace atl::swarm {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// One metric at a time: all its samples must stand together.
class Exposition {
 public:
  void metric(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP atoll_{} {}\n# TYPE atoll_{} {}\n", name, help, name, type);
  }

  template <typename T>
  void sample(const T& value, const Labels& labels = {}) {
    if constexpr (requires { value.has_value(); }) {
      if (value) sample(*value, labels);
    } else {
      std::string list;
      for (const auto& [label, text] : labels) {
        list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label, escaped(text));
      }
      text_ += fmt::format("atoll_{}{}{}{} {}\n", name_, list.empty() ? "" : "{", list,
                           list.empty() ? "" : "}", number(static_cast<double>(value)));
    }
  }

  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

using Runs = std::vector<RunStatus>;

/// The labels of a sample of that run.
Labels of(const RunStatus& run, Labels more = {}) {
  if (!run.name.empty()) more.emplace(more.begin(), "run", run.name);
  return more;
}

void write_runs(Exposition& out, const Runs& runs) {
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help,
                        auto field) {
    out.metric(name, type, help);
    for (const RunStatus& run : runs) out.sample(std::invoke(field, run), of(run));
  };
  const auto gauge = [&](std::string_view name, std::string_view help, auto field) {
    each(name, "gauge", help, field);
  };
  out.metric("run_info", "gauge", "1, labelled with the run's id.");
  for (const RunStatus& run : runs) {
    out.sample(1, of(run, {{run.name.empty() ? "run" : "id", run.run}}));
  }
  out.metric("run_state", "gauge", "1 for the state that the run is in, 0 for the others.");
  for (const RunStatus& run : runs) {
    for (const RunState state :
         {RunState::kGathering, RunState::kTraining, RunState::kStopping, RunState::kOver}) {
      out.sample(state == run.state ? 1 : 0, of(run, {{"state", name_of(state)}}));
    }
  }
  gauge("term", "The coordinator's incarnation.", &RunStatus::term);
  gauge("view", "Number of the membership; 0 before the start.", &RunStatus::view);
  gauge("round", "The last committed round.", &RunStatus::round);
  gauge("step", "Inner step of the last committed round.", &RunStatus::step);
  gauge("steps", "Inner steps of the whole run.", &RunStatus::steps);
  each("committed_tokens_total", "counter",
       "Tokens in committed rounds since the coordinator's start.", &RunStatus::committed_tokens);
  gauge("uptime_seconds", "Seconds since the coordinator's start.", &RunStatus::uptime_s);
  gauge("age_seconds", "Seconds since the coordinator published all this.", &RunStatus::age_s);
  gauge("rounds_per_minute", "Committed rounds per minute, lately.", &RunStatus::rounds_per_minute);
  gauge("seconds_left", "Until the last step, at the pace of the last rounds.",
        &RunStatus::seconds_left);
  gauge("islands_wanted", "Islands that the run begins with.", &RunStatus::wanted);
  gauge("islands_live", "Islands that are heard and have not left.", &RunStatus::live);
  gauge("islands_participating", "Members of the last commit.", &RunStatus::participating);
  gauge("averaged_weight_share",
        "Tokens that the last commit averaged, of those that its members and all live islands "
        "could have brought (0 to 1).",
        &RunStatus::averaged_share);
  gauge("alarm", "1 when live islands take no part in commits.",
        [](const RunStatus& run) { return run.alarm.empty() ? 0 : 1; });
}

void write_islands(Exposition& out, const Runs& runs) {
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help,
                        auto field) {
    out.metric(name, type, help);
    for (const RunStatus& run : runs) {
      for (const IslandStatus& island : run.islands) {
        out.sample(std::invoke(field, island), of(run, {{"island", island.name}}));
      }
    }
  };
  out.metric("island_state", "gauge", "1 for the state that the island is in, 0 for the others.");
  for (const RunStatus& run : runs) {
    for (const IslandStatus& island : run.islands) {
      for (const IslandState state :
           {IslandState::kJoining, IslandState::kFetching, IslandState::kTraining,
            IslandState::kAway, IslandState::kLeft}) {
        out.sample(state == island.state ? 1 : 0,
                   of(run, {{"island", island.name}, {"state", name_of(state)}}));
      }
    }
  }
  each("island_step", "gauge", "Inner step of the island.", &IslandStatus::step);
  each("island_loss", "gauge", "Training loss of the island.", &IslandStatus::loss);
  each("island_tokens_per_second", "gauge", "Tokens per second that the island trains on.",
       &IslandStatus::tokens_per_s);
  each("island_committed_tokens_total", "counter", "Tokens of the island in committed rounds.",
       &IslandStatus::tokens);
  each("island_last_round", "gauge", "The last committed round that the island took part in.",
       &IslandStatus::last_round);
  each("island_left_out_rounds_total", "counter",
       "Rounds that the island's contribution was left out of: an outlier, or not usable.",
       &IslandStatus::left_out);
  each("island_heard_seconds", "gauge", "Seconds since the coordinator heard of the island.",
       &IslandStatus::heard_s);
  each("island_stall_share", "gauge", "Share of its training time that the island waits (0 to 1).",
       &IslandStatus::stall_share);
}

void write_links(Exposition& out, const Runs& runs) {
  const auto each = [&](std::string_view name, std::string_view help, auto field) {
    out.metric(name, "gauge", help);
    for (const RunStatus& run : runs) {
      for (const IslandStatus& island : run.islands) {
        for (const LinkStatus& link : island.links) {
          out.sample(std::invoke(field, link), of(run, {{"from", island.name}, {"to", link.to}}));
        }
      }
    }
  };
  each("link_bytes_per_second", "Measured while one island sent to another.",
       &LinkStatus::bytes_per_s);
  each("link_rtt_seconds", "From one island to another and back.", &LinkStatus::rtt_s);
}

}  // namespace

std::string to_prometheus(const Runs& runs) {
  Exposition out;
  write_runs(out, runs);
  write_islands(out, runs);
  write_links(out, runs);
  return out.take();
}

}  // namespace atl::swarm
