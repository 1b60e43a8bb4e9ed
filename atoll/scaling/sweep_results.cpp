#include "atoll/scaling/sweep_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "atoll/base/error.h"

namespace atl::scaling {
namespace {

Cell likeness(const Cell& cell) {
  return {"", 0, cell.method, cell.sync_every, cell.tokens_factor};
}

std::string family_name(const Cell& like) {
  std::string name = like.method;
  if (like.sync_every > 0) name += fmt::format("-H{}", like.sync_every);
  if (like.tokens_factor != 1) name += fmt::format("-x{:g}", like.tokens_factor);
  return name;
}

/// The kinds of cells with replicas, in order; where there are none, those without.
std::vector<Cell> likenesses(const SweepState& state) {
  std::vector<Cell> some;
  for (const bool with_replicas : {true, false}) {
    for (const GridCell& cell : state.cells) {
      const Cell like = likeness(cell.cell);
      const bool has_family = std::ranges::any_of(some, [&](const Cell& other) {
        return other == like ||
               (cell.cell.replicas == 0 && other.tokens_factor == like.tokens_factor);
      });
      if ((cell.cell.replicas > 0) == with_replicas && !has_family) some.push_back(like);
    }
  }
  return some;
}

bool belongs(const Cell& cell, const Cell& like) {
  if (cell.replicas == 0) return cell.tokens_factor == like.tokens_factor;
  return likeness(cell) == like;
}

Run run_of(const SweepPoint& point, double loss, const ResultRules& rules) {
  const SizeNumbers size = rules.size(point.cell.size);
  Run run{.params = size.params,
          .replicas = static_cast<double>(point.cell.replicas),
          .loss = loss,
          .batch = point.at[kBatchTokens],
          .lr = point.at[kLr],
          .tokens = rules.tokens(point),
          .seed = static_cast<double>(point.seed),
          .layers = size.layers,
          .hidden = size.hidden,
          .ff = size.ff,
          .vocab = size.vocab};
  if (point.at[kOuterLr] > 0) run.outer_lr = point.at[kOuterLr];
  if (point.cell.sync_every > 0) run.sync_every = static_cast<double>(point.cell.sync_every);
  return run;
}

/// As a table's rows that differ in their seed alone are averaged.
std::vector<Run> seeds_averaged(const std::vector<Run>& runs) {
  return parse_table(table_text(runs), "the sweep's points").runs;
}

void fit(Family& family, const std::map<double, std::string>& names, const FitOptions& options) {
  if (family.best.empty()) return;
  try {
    family.fit = fit_runs(family.best, options);
  } catch (const InputError&) {
    return;  // Too few sizes; the table of cells says all there is.
  }
  FitReport& report = *family.fit;
  // A cell's best alone is no sweep: its optima come from all of its points.
  std::erase_if(report.refused, [](const Refusal& refusal) {
    return refusal.what.starts_with("best batch") || refusal.what.starts_with("best lr");
  });
  const std::vector<Run> all = seeds_averaged(family.all);
  report.batch_optima = quadratic_optima(all, &Run::batch, "batch");
  report.lr_optima = quadratic_optima(all, &Run::lr, "lr");
  report.batch = report.lr = {};
  if (!report.batch_optima.points.empty()) {
    report.batch = fit_power_laws(report.batch_optima.points, "batch");
  }
  if (!report.lr_optima.points.empty()) {
    report.lr = fit_power_laws(report.lr_optima.points, "lr");
  }
  const HeldOut held = hold_out_largest(report.points);
  const PowerLaws laws = fit_power_laws(held.kept, "loss");
  for (const Point& point : held.out) {
    HeldOutLoss one{.size = names.at(point.params),
                    .params = point.params,
                    .replicas = point.replicas,
                    .trained = point.value};
    if (const PowerLaw* law = laws.of(point.replicas)) {
      one.independent = law->predict(point.params, point.replicas);
    }
    if (laws.joint && point.replicas >= 1) {
      one.joint = laws.joint->predict(point.params, point.replicas);
    }
    if (one.independent || one.joint) family.held_out.push_back(one);
  }
}

}  // namespace

std::vector<Family> families_of(const SweepState& state, const ResultRules& rules,
                                const Known& known, const FitOptions& options) {
  std::vector<Family> families;
  for (const Cell& like : likenesses(state)) {
    Family family{.like = like, .name = family_name(like)};
    std::map<Cell, Run> best;
    std::map<double, std::string> names;
    std::set<SweepPoint> seen;
    for (const GridCell& cell : state.cells) {
      if (!belongs(cell.cell, like)) continue;
      names[rules.size(cell.cell.size).params] = cell.cell.size;
      for (const SweepPoint& point : cell.state.points) {
        if (point.tokens_share != 1 || !seen.insert(point).second) continue;
        const auto outcome = known(point);
        if (outcome && outcome->loss) family.all.push_back(run_of(point, *outcome->loss, rules));
      }
      if (cell.state.best) {
        Run run = run_of(cell.state.best->point, cell.state.best->loss, rules);
        run.seed.reset();
        best[cell.cell] = run;
      }
    }
    for (const auto& [cell, run] : best) family.best.push_back(run);
    fit(family, names, options);
    families.push_back(std::move(family));
  }
  const auto num_sizes = [](const Family& family) {
    std::set<double> sizes;
    for (const Run& run : family.best) {
      if (run.replicas > 0 || family.like.method == "data_parallel") sizes.insert(run.params);
    }
    return sizes.size();
  };
  const auto main = std::ranges::max_element(families, {}, num_sizes);
  if (main != families.end()) std::rotate(families.begin(), main, main + 1);
  // The others share the first one's data-parallel cells; a law of those alone would be told twice.
  for (size_t i = 1; i < families.size(); ++i) {
    if (num_sizes(families[i]) >= kMinSizes) continue;
    families[i].fit.reset();
    families[i].held_out.clear();
  }
  return families;
}

}  // namespace atl::scaling
