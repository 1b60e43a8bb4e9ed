// The text that Prometheus reads (exposition format 0.0.4): a HELP and a TYPE line for each metric,
// then its samples.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "atoll/base/fields.h"
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

/// The metrics that structs name behind their fields. All samples of a metric stand together.
class Exposition {
 public:
  /// Without samples they are there too.
  void declare(const Metric& metric) { metrics_.emplace_back(metric, ""); }
  template <typename T>
  void declare_fields() {
    const T sample{};
    visit_fields(sample, [this](const char*, const auto&, const auto&... metric) {
      (declare(metric), ...);
    });
  }

  void add_fields(const auto& value, const Labels& labels) {
    visit_fields(value, [&](const char*, const auto& part, const auto&... metric) {
      (add(metric, part, labels), ...);
    });
  }

  template <typename T>
  void add(const Metric& metric, const T& value, Labels labels) {
    if constexpr (std::is_enum_v<T>) {
      labels.emplace_back("state", "");
      for (size_t state = 0; state < names_of(value).size(); ++state) {
        labels.back().second = names_of(value)[state];
        add(metric, state == static_cast<size_t>(value), labels);
      }
    } else if constexpr (std::is_same_v<T, std::string>) {
      add(metric, !value.empty(), labels);
    } else if constexpr (requires { value.has_value(); }) {
      if (value) add(metric, *value, labels);
    } else {
      std::string list;
      for (const auto& [label, text] : labels) {
        list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label, escaped(text));
      }
      const auto found = std::ranges::find(metrics_, std::string_view(metric.name),
                                           [](const auto& known) { return known.first.name; });
      found->second +=
          fmt::format("atoll_{}{}{}{} {}\n", metric.name, list.empty() ? "" : "{", list,
                      list.empty() ? "" : "}", number(static_cast<double>(value)));
    }
  }

  std::string text() const {
    std::string text;
    for (const auto& [metric, samples] : metrics_) {
      text += fmt::format("# HELP atoll_{} {}\n# TYPE atoll_{} {}\n{}", metric.name, metric.help,
                          metric.name, metric.type, samples);
    }
    return text;
  }

 private:
  std::vector<std::pair<Metric, std::string>> metrics_;
};

}  // namespace

std::string to_prometheus(const std::vector<RunStatus>& runs) {
  constexpr Metric kInfo{"run_info", "1, labelled with the run's id."};
  constexpr Metric kState{"run_state", "1 for the state that the run is in, 0 for the others."};
  Exposition out;
  out.declare(kInfo);
  out.declare(kState);  // Ahead of its place among the fields.
  out.declare_fields<RunStatus>();
  out.declare_fields<IslandStatus>();
  out.declare_fields<LinkStatus>();
  out.declare_fields<ServerStatus>();
  for (const RunStatus& run : runs) {
    const auto labels = [&](Labels more) {
      if (!run.name.empty()) more.emplace(more.begin(), "run", run.name);
      return more;
    };
    out.add(kInfo, 1, labels({{run.name.empty() ? "run" : "id", run.run}}));
    out.add(kState, run.state, labels({}));
    out.add_fields(run, labels({}));
    for (const IslandStatus& island : run.islands) {
      out.add_fields(island, labels({{"island", island.name}}));
      for (const LinkStatus& link : island.links) {
        out.add_fields(link, labels({{"from", island.name}, {"to", link.to}}));
      }
    }
    for (const ServerStatus& server : run.servers) {
      out.add_fields(server, labels({{"server", server.name}}));
    }
  }
  return out.text();
}

}  // namespace atl::swarm
