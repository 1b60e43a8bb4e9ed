#include "atoll/cli/sweep_output.h"

#include <fmt/format.h>

#include <set>

#include "atoll/base/file.h"
#include "atoll/cli/fit_json.h"
#include "atoll/laws/fit_chart.h"
#include "atoll/sweep/sweep_report.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using sweep::SweepPoint;

constexpr const char* kEndNames[] = {"unused", "fixed", "interior", "low", "high"};

Json cell_json(const sweep::Cell& cell) {
  Json json = {{"size", cell.size}, {"replicas", cell.replicas}, {"method", cell.method}};
  if (cell.sync_every > 0) json["sync_every"] = cell.sync_every;
  json["tokens_factor"] = cell.tokens_factor;
  return json;
}

Json place_json(const SweepPoint& point) {
  Json json;
  for (size_t axis = 0; axis < sweep::kNumAxes; ++axis) {
    if (point.at[axis] > 0) json[sweep::kAxisNames[axis]] = point.at[axis];
  }
  return json;
}

Json grid_cell_json(const sweep::GridCell& cell, const sweep::ResultRules& rules,
                    const sweep::SweepDriver& driver) {
  Json json = {{"grid", cell.grid}};
  json.update(cell_json(cell.cell));
  json["params"] = rules.size(cell.cell.size).params;
  json["points"] = cell.state.points.size();
  json["failed"] = cell.state.num_failed;
  json["done"] = cell.state.done;
  if (!cell.blocked.empty()) json["blocked"] = cell.blocked;
  if (!cell.waits.empty()) json["waits_for"] = cell.waits;
  json["best"] = nullptr;
  if (cell.state.best) {
    json["best"] = place_json(cell.state.best->point);
    json["best"]["key"] = driver.key(cell.state.best->point);
    json["best"]["loss"] = cell.state.best->loss;
    json["best"]["deviation"] = cell.state.best->deviation;
    json["best"]["seeds"] = cell.state.best->num_seeds;
    json["best"]["failed_seeds"] = cell.state.best->num_failed;
  }
  json["axes"] = Json::object();
  for (size_t axis = 0; axis < sweep::kNumAxes; ++axis) {
    const sweep::AxisState& one = cell.state.axes[axis];
    if (one.end == sweep::AxisEnd::kUnused || one.end == sweep::AxisEnd::kFixed) continue;
    Json& end = json["axes"][sweep::kAxisNames[axis]];
    end = {{"end", kEndNames[static_cast<size_t>(one.end)]},
           {"low", one.low},
           {"high", one.high},
           {"extensions", one.extensions},
           {"beside_failed", one.beside_failed},
           {"beside_lesser", one.beside_lesser}};
    if (!one.limit.empty()) end["limit"] = one.limit;
  }
  return json;
}

Json family_json(const sweep::Family& family, const laws::FitOptions& options,
                 const std::string& count) {
  Json json = {{"family", family.name}, {"fit", nullptr}, {"held_out", Json::array()}};
  if (family.fit) json["fit"] = fit_json(*family.fit, options, count, family.best);
  for (const sweep::HeldOutLoss& one : family.held_out) {
    json["held_out"].push_back({{"size", one.size},
                                {"params", one.params},
                                {"replicas", one.replicas},
                                {"trained", one.trained},
                                {"independent", one.independent ? Json(*one.independent) : Json()},
                                {"joint", one.joint ? Json(*one.joint) : Json()}});
  }
  return json;
}

sweep::ResultRules result_rules(const sweep::SweepSettings& settings) {
  return {.size =
              [&settings](const std::string& name) {
                const sweep::SweptModel& model = settings.model(name);
                return sweep::SizeNumbers{.params = model.params,
                                          .layers = static_cast<double>(model.config.num_layers),
                                          .hidden = static_cast<double>(model.config.hidden_size),
                                          .ff = static_cast<double>(model.config.intermediate_size),
                                          .vocab = static_cast<double>(model.config.vocab_size)};
              },
          .tokens = [&settings](const SweepPoint& point) { return settings.tokens(point); }};
}

std::string table_file(const SweepOutput& output, const sweep::Family& family) {
  return &family == &output.families.front() ? "results.csv"
                                             : fmt::format("results-{}.csv", family.name);
}

}  // namespace

SweepOutput sweep_output(const std::string& name, const sweep::SweepSettings& settings,
                         const sweep::SweepDriver& driver) {
  const sweep::ResultRules rules = result_rules(settings);
  const laws::FitOptions options;
  SweepOutput output{.state = driver.state()};
  output.families = sweep::families_of(output.state, rules, driver.known(), options);
  sweep::SweepTotals totals{
      .name = name, .count = settings.spec().papers_count ? kPapersCount : "all parameters"};
  std::vector<sweep::FailedPoint> failed;
  for (const SweepPoint& point : driver.distinct(output.state.points())) {
    const sweep::PointRow* row = driver.row(point);
    if (row == nullptr) {
      ++totals.num_missing;
      continue;
    }
    ++totals.num_points;
    totals.core_seconds += row->seconds * static_cast<double>(driver.task(point).cores);
    if (row->status == sweep::PointStatus::kDone) {
      totals.tokens += settings.tokens(point);
    } else {
      failed.push_back({point, row->message});
    }
  }
  totals.shortage = driver.shortage();
  output.report = sweep::sweep_report(totals, output.state, output.families, failed, rules);
  output.num_points = totals.num_points;
  output.num_failed = failed.size();
  Json& json = output.json;
  json = {{"sweep", name},
          {"done", output.state.done()},
          {"points", totals.num_points},
          {"failed", failed.size()},
          {"missing", totals.num_missing},
          {"tokens", totals.tokens},
          {"core_seconds", totals.core_seconds},
          {"cells", Json::array()},
          {"families", Json::array()},
          {"failures", Json::array()}};
  if (!totals.shortage.empty()) json["shortage"] = totals.shortage;
  for (const sweep::GridCell& cell : output.state.cells) {
    json["cells"].push_back(grid_cell_json(cell, rules, driver));
  }
  for (const sweep::Family& family : output.families) {
    json["families"].push_back(family_json(family, options, totals.count));
  }
  for (const sweep::FailedPoint& one : failed) {
    Json entry = cell_json(one.point.cell);
    entry.update(place_json(one.point));
    entry["seed"] = one.point.seed;
    entry["message"] = one.message;
    json["failures"].push_back(std::move(entry));
  }
  return output;
}

void write_sweep_output(const SweepOutput& output, const std::filesystem::path& folder) {
  std::string report = output.report;
  for (const sweep::Family& family : output.families) {
    const std::string file = table_file(output, family);
    if (!family.all.empty()) {
      write_file_atomically(folder / file, laws::table_text(family.all));
      report += fmt::format("Points of {}: `{}`.\n", family.name, file);
    }
    if (&family == &output.families.front() && family.fit) {
      const laws::Chart chart = laws::fit_chart(*family.fit, laws::FitOptions().confidence);
      write_file_atomically(folder / "loss.svg", laws::chart_svg(chart));
      report += fmt::format("\n![loss over size]({})\n\n", "loss.svg");
    }
  }
  write_file_atomically(folder / "report.md", report);
}

std::string sweep_table(const SweepOutput& output) {
  constexpr const char* kRow = "{:<44} {:>9} {:>9} {:>9} {:>8}{}\n";
  std::string text = fmt::format(kRow, "", "lr", "outer lr", "batch", "loss", "");
  for (const sweep::GridCell& cell : output.state.cells) {
    const std::string name = fmt::format("{}: {}", cell.grid, sweep::cell_name(cell.cell));
    if (!cell.state.best) {
      text += fmt::format(kRow, name, "", "", "", "-", "  " + sweep::without_best_text(cell));
      continue;
    }
    const sweep::BestPlace& best = *cell.state.best;
    const auto value = [&](size_t axis) {
      return best.point.at[axis] > 0 ? laws::number_text(best.point.at[axis]) : "-";
    };
    std::string ends = sweep::failed_seeds_text(best);
    for (size_t axis = 0; axis < sweep::kNumAxes; ++axis) {
      const sweep::AxisState& one = cell.state.axes[axis];
      if (one.end == sweep::AxisEnd::kInterior && !one.beside_failed && !one.beside_lesser)
        continue;
      const std::string end = sweep::axis_text(static_cast<sweep::Axis>(axis), one);
      if (!end.empty()) ends += (ends.empty() ? "" : "; ") + end;
    }
    text += fmt::format(kRow, name, value(sweep::kLr), value(sweep::kOuterLr),
                        value(sweep::kBatchTokens), fmt::format("{:.4f}", best.loss),
                        ends.empty() ? "" : "  " + ends);
  }
  for (const sweep::Family& family : output.families) {
    for (const sweep::HeldOutLoss& one : family.held_out) {
      const auto& predicted = one.joint ? one.joint : one.independent;
      text += fmt::format(
          "{}: {} ({}) predicted from the smaller sizes: {:.4f}, trained: {:.4f} ({:+.2f} %)\n",
          family.name, one.size, laws::replicas_name(one.replicas), *predicted, one.trained,
          100 * (*predicted / one.trained - 1));
    }
  }
  return text;
}

}  // namespace atl::cli
