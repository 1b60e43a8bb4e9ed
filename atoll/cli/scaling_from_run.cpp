#include "atoll/cli/scaling_from_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/collective/exchange.h"
#include "atoll/laws/chart.h"
#include "atoll/laws/recorded_run.h"
#include "atoll/method/method.h"
#include "atoll/net/pacer.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/recorded_lines.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::RunTime;
using laws::SimulatedIsland;
using run::Lines;
using run::RunRecord;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Lines lines_of(const FromRun& arguments, const RunRecord& record) {
  if (arguments.link_rate.empty() && arguments.gbps == 0) {
    if (!arguments.islands.empty()) {
      throw UsageError("--island needs a line with --from: --gbps, or --link-rate as it was");
    }
    return run::recorded_lines(record);
  }
  const auto& members = record.run.islands;
  Lines lines{.islands = arguments.islands,
              .gbps = arguments.gbps,
              .payload_share = laws::kPayloadShare,
              .source = "given"};
  if (lines.islands.empty()) lines.islands.resize(members.size());
  if (lines.islands.size() != members.size()) {
    std::vector<std::string> names;
    for (const auto& member : members) names.push_back(member.name);
    throw UsageError(fmt::format("the run has {} islands ({}), and --island was given for {}",
                                 members.size(), fmt::join(names, ", "), lines.islands.size()));
  }
  if (arguments.link_rate.empty()) return lines;
  lines.gbps = run::parse_link_rate(arguments.link_rate) / 1e9;
  lines.payload_share = 1;
  lines.source = "link_rate";
  for (SimulatedIsland& island : lines.islands) {
    if (island.up != 1 || island.down != 1) {
      throw UsageError(
          "--link-rate is what each island sends at: an --island beside it has no up or down");
    }
    island.down = kInfinity;
    island.burst_s = net::kBurstSeconds;
    island.piece_bytes = static_cast<double>(collective::chunk_size(lines.gbps * 1e9 / 8));
  }
  return lines;
}

double points(double predicted, double measured) { return 100 * (predicted - measured); }

Json utilisation_json(double predicted, double measured) {
  return {{"predicted", predicted},
          {"measured", measured},
          {"difference_points", points(predicted, measured)}};
}

Json island_json(const RunRecord& record, size_t i, const RunTime& predicted,
                 const RunTime& measured) {
  const laws::IslandTime& was = measured.islands[i];
  const auto num_steps = static_cast<double>(record.run.last_step() - record.run.first_step());
  Json json = {{"name", record.run.islands[i].name}, {"step_s", was.computing_s / num_steps}};
  json.update(utilisation_json(predicted.islands[i].utilisation(), was.utilisation()));
  json["computing_s"] = was.computing_s;
  json["handling_s"] = was.handling_s;
  json["waiting_s"] = was.waiting_s;
  json["pausing_s"] = was.pausing_s;
  json["predicted_waiting_s"] = predicted.islands[i].waiting_s;
  return json;
}

Json lines_json(const Lines& lines) {
  Json json = {{"source", lines.source},
               {"gbps", lines.gbps},
               {"payload_share", lines.payload_share},
               {"islands", Json::array()}};
  for (const SimulatedIsland& island : lines.islands) {
    json["islands"].push_back({{"speed", island.speed},
                               {"up", island.up},
                               {"down", std::isfinite(island.down) ? Json(island.down) : Json()},
                               {"latency_s", island.latency_s}});
  }
  return json;
}

/// What the prediction does not know of, where it matters.
Json left_out_json(const RunRecord& record, const RunTime& predicted, const RunTime& measured) {
  double pausing_s = 0;
  double waiting_s = 0;
  for (size_t i = 0; i < measured.islands.size(); ++i) {
    pausing_s += measured.islands[i].pausing_s;
    waiting_s += measured.islands[i].waiting_s - predicted.islands[i].waiting_s;
  }
  const auto num_islands = static_cast<double>(measured.islands.size());
  Json out = Json::array();
  out.push_back({{"what",
                  "validation and checkpoints, of an island: they count neither as computing nor "
                  "as waiting"},
                 {"seconds", pausing_s / num_islands}});
  out.push_back({{"what",
                  "of a round, beside its bits, ways and outer step: encoding and sums, the "
                  "coordinator and its journal, TCP"},
                 {"seconds", measured.exchange_s - predicted.exchange_s}});
  out.push_back(
      {{"what", "the same of the first round, in which connections learn what they carry"},
       {"seconds", measured.first_exchange_s - predicted.first_exchange_s}});
  out.push_back({{"what",
                  "of an island's waiting in all, what was longer than predicted: the same, and "
                  "rows that had not been granted"},
                 {"seconds", waiting_s / num_islands}});
  const size_t num_unknown = record.run.islands.size() - record.islands.size();
  if (num_unknown > 0) {
    out.push_back(
        {{"what", fmt::format("the records of {} of the {} islands are not here: they are taken "
                              "to be like {}",
                              num_unknown, record.run.islands.size(), record.islands.front().name)},
         {"seconds", nullptr}});
  }
  return out;
}

/// The bandwidths for the targets, exact and on the papers' grid.
void add_targets(Json& json, const FromRun& arguments, const RunRecord& record,
                 const Lines& lines) {
  std::array<double, laws::kGridSize> grid;
  for (int k = 0; k < laws::kGridSize; ++k) {
    const double gbps = laws::grid_gbps(k) * lines.payload_share;
    grid[static_cast<size_t>(k)] = laws::simulate(record.run, lines.islands, gbps).utilisation();
  }
  json["targets"] = arguments.targets;
  json["gbps"] = Json::array();
  json["grid_index"] = Json::array();
  for (const double target : arguments.targets) {
    const auto gbps = laws::gbps_for(record.run, lines.islands, target);
    const auto index = laws::grid_index(grid, target);
    json["gbps"].push_back(gbps ? Json(*gbps / lines.payload_share) : Json());
    json["grid_index"].push_back(index ? Json(*index) : Json());
  }
}

Json report(const FromRun& arguments, const RunRecord& record, const Lines& lines) {
  const method::SyncOptions& sync = record.config.sync;
  const RunTime measured = laws::measured(record.run);
  const RunTime predicted = laws::simulate(record.run, lines.islands, lines.payload_gbps());
  const run::Traffic traffic = run::traffic_of(record);
  Json json = {{"run", arguments.run},
               {"method", sync.method},
               {"parameters", weights::num_parameters(record.config.model)},
               {"layers", record.config.model.num_layers},
               {"sync_every", method::period(sync)},
               {"fragments", method::num_fragments(sync)},
               {"delay", method::fragment_sync_delay(sync)},
               {"codec", traffic.codec},
               {"bits_on_the_wire", traffic.bits_per_value()},
               {"calibration", "none"},
               {"first_step", record.run.first_step()},
               {"last_step", record.run.last_step()},
               {"utilisation", utilisation_json(predicted.utilisation(), measured.utilisation())},
               {"islands", Json::array()},
               {"round",
                {{"predicted_s", predicted.exchange_s},
                 {"measured_s", measured.exchange_s},
                 {"values", traffic.values},
                 {"copies", traffic.copies()},
                 {"bytes_sent", traffic.sent},
                 {"bytes_received", traffic.received},
                 {"rounds", traffic.num_rounds}}},
               {"line", lines_json(lines)},
               {"left_out", left_out_json(record, predicted, measured)}};
  for (size_t i = 0; i < record.run.islands.size(); ++i) {
    json["islands"].push_back(island_json(record, i, predicted, measured));
  }
  add_targets(json, arguments, record, lines);
  return json;
}

void print_row(const std::string& name, const Json& row) {
  fmt::print("  {:<22} {:>8.1f} % {:>8.1f} % {:>+11.1f}\n", name,
             100 * row["predicted"].get<double>(), 100 * row["measured"].get<double>(),
             row["difference_points"].get<double>());
}

void print_text(const Json& json) {
  fmt::print("{}: {}, steps {} to {}, {} parameters in {} layers\n", json["run"].get<std::string>(),
             json["method"].get<std::string>(), json["first_step"].get<int64_t>() + 1,
             json["last_step"].get<int64_t>(), format_count(json["parameters"].get<double>()),
             json["layers"].get<int64_t>());
  fmt::print("share of the time that computed\n  {:<22} {:>10} {:>10} {:>11}\n", "", "predicted",
             "measured", "points");
  for (const Json& island : json["islands"]) print_row(island["name"].get<std::string>(), island);
  print_row("all", json["utilisation"]);
  const Json& round = json["round"];
  fmt::print(
      "a round: {:.4g} s predicted, {:.4g} s measured; an island sends {} ({} times {:.4g} "
      "bits for each of {} values)\n",
      round["predicted_s"].get<double>(), round["measured_s"].get<double>(),
      format_bytes(round["bytes_sent"].get<double>()),
      fmt::format("{:.4g}", round["copies"].get<double>()), json["bits_on_the_wire"].get<double>(),
      format_count(round["values"].get<double>()));
  fmt::print("line: {:.4g} Gbit/s, {}\n", json["line"]["gbps"].get<double>(),
             json["line"]["source"].get<std::string>());
  fmt::print("left out\n");
  for (const Json& entry : json["left_out"]) {
    const Json& seconds = entry["seconds"];
    fmt::print("  {:>9}  {}\n",
               seconds.is_null() ? "" : fmt::format("{:.3f} s", seconds.get<double>()),
               entry["what"].get<std::string>());
  }
  fmt::print("Gbit/s for a utilisation of\n ");
  for (const Json& target : json["targets"]) {
    fmt::print(" {:>9}", fmt::format("{:g} %", 100 * target.get<double>()));
  }
  fmt::print("\n ");
  for (const Json& gbps : json["gbps"]) {
    fmt::print(" {:>9}", gbps.is_null() ? "none" : fmt::format("{:.3g}", gbps.get<double>()));
  }
  fmt::print("\n");
}

void draw(const FromRun& arguments, const RunRecord& record, const Lines& lines, const Json& json) {
  constexpr int kPointsInDecade = 20;
  constexpr int kDecades = 3;  // On each side of the run's own.
  laws::ChartSeries curve{.name = "predicted", .line = {}, .points = {}, .band = {}};
  for (int k = -kDecades * kPointsInDecade; k <= kDecades * kPointsInDecade; ++k) {
    const double gbps = lines.gbps * std::pow(10, static_cast<double>(k) / kPointsInDecade);
    const RunTime time = laws::simulate(record.run, lines.islands, gbps * lines.payload_share);
    curve.line.push_back({gbps, time.utilisation()});
  }
  laws::ChartSeries own{.name = "measured", .line = {}, .points = {}, .band = {}};
  own.points.push_back({lines.gbps, json["utilisation"]["measured"].get<double>()});
  const laws::Chart chart{.title = fmt::format("Compute utilisation of {}: {}, {} parameters",
                                               arguments.run, json["method"].get<std::string>(),
                                               format_count(json["parameters"].get<double>())),
                          .x_label = "bandwidth between islands (Gbit/s)",
                          .y_label = "share of the time that computes",
                          .series = {std::move(curve), std::move(own)}};
  write_file_atomically(arguments.plot, laws::chart_file(chart, arguments.plot));
}

}  // namespace

void simulate_from(const FromRun& arguments) {
  const RunRecord record = run::read_run_record(arguments.run);
  const Lines lines = lines_of(arguments, record);
  const Json json = report(arguments, record, lines);
  if (!arguments.plot.empty()) draw(arguments, record, lines, json);
  if (arguments.json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    print_text(json);
  }
}

}  // namespace atl::cli
