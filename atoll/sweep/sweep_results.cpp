#include "atoll/sweep/sweep_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "atoll/base/error.h"

namespace atl::sweep {
namespace {

laws::RunKind kind_of(const Cell& cell) {
  laws::RunKind kind{.replicated = cell.replicas > 0, .tokens = cell.tokens_factor};
  if (kind.replicated) {
    kind.method = cell.method;
    kind.sync_every = static_cast<double>(cell.sync_every);
  }
  return kind;
}

std::string family_name(const laws::RunKind& kind) {
  std::string name = kind.replicated ? kind.method : "data_parallel";
  if (kind.sync_every > 0) name += fmt::format("-H{:g}", kind.sync_every);
  if (kind.tokens != 1) name += fmt::format("-x{:g}", kind.tokens);
  return name;
}

laws::Run run_of(const SweepPoint& point, double loss, const ResultRules& rules) {
  const SizeNumbers size = rules.size(point.cell.size);
  laws::Run run{.params = size.params,
                .replicas = static_cast<double>(point.cell.replicas),
                .loss = loss,
                .batch = point.at[kBatchTokens],
                .lr = point.at[kLr],
                .tokens = rules.tokens(point),
                .seed = static_cast<double>(point.seed),
                .layers = size.layers,
                .hidden = size.hidden,
                .ff = size.ff,
                .vocab = size.vocab,
                .method = point.cell.method};
  if (point.at[kOuterLr] > 0) run.outer_lr = point.at[kOuterLr];
  if (point.cell.sync_every > 0) run.sync_every = static_cast<double>(point.cell.sync_every);
  return run;
}

/// As a table's rows that differ in their seed alone are averaged.
std::vector<laws::Run> seeds_averaged(const std::vector<laws::Run>& runs) {
  return laws::parse_table(laws::table_text(runs), "the sweep's points").runs;
}

void fit(Family& family, const std::map<double, std::string>& names,
         const laws::FitOptions& options) {
  if (family.best.empty()) return;
  try {
    family.fit = laws::fit_runs(family.best, options);
  } catch (const InputError&) {
    return;  // Too few sizes; the table of cells says all there is.
  }
  laws::FitReport& report = *family.fit;
  // A cell's best alone is no sweep: its optima come from all of its points.
  std::erase_if(report.refused, [](const laws::Refusal& refusal) {
    return refusal.what.starts_with("best batch") || refusal.what.starts_with("best lr");
  });
  const std::vector<laws::Run> all = seeds_averaged(family.all);
  report.batch_optima = laws::quadratic_optima(all, &laws::Run::batch, "batch");
  report.lr_optima = laws::quadratic_optima(all, &laws::Run::lr, "lr");
  report.batch = report.lr = {};
  if (!report.batch_optima.points.empty()) {
    report.batch = laws::fit_power_laws(report.batch_optima.points, "batch");
  }
  if (!report.lr_optima.points.empty()) {
    report.lr = laws::fit_power_laws(report.lr_optima.points, "lr");
  }
  const laws::HeldOut held = laws::hold_out_largest(report.points);
  const laws::PowerLaws laws = laws::fit_power_laws(held.kept, "loss");
  for (const laws::Point& point : held.out) {
    HeldOutLoss one{.size = names.at(point.params),
                    .params = point.params,
                    .replicas = point.replicas,
                    .trained = point.value};
    if (const laws::PowerLaw* law = laws.of(point.replicas)) {
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
                                const Known& known, const laws::FitOptions& options) {
  std::vector<laws::RunKind> kinds;
  for (const GridCell& cell : state.cells) kinds.push_back(kind_of(cell.cell));
  std::vector<Family> families;
  for (const laws::RunKind& kind : laws::kinds_of(kinds)) {
    Family family{.kind = kind, .name = family_name(kind)};
    std::map<Cell, laws::Run> best;
    std::map<double, std::string> names;
    std::set<SweepPoint> seen;
    for (const GridCell& cell : state.cells) {
      if (!laws::goes_with(kind_of(cell.cell), kind)) continue;
      names[rules.size(cell.cell.size).params] = cell.cell.size;
      for (const SweepPoint& point : cell.state.points) {
        if (point.tokens_share != 1 || !seen.insert(point).second) continue;
        const auto outcome = known(point);
        if (outcome && outcome->loss) family.all.push_back(run_of(point, *outcome->loss, rules));
      }
      if (cell.state.best) {
        laws::Run run = run_of(cell.state.best->point, cell.state.best->loss, rules);
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
    for (const laws::Run& run : family.best) {
      if ((run.replicas > 0) == family.kind.replicated) sizes.insert(run.params);
    }
    return sizes.size();
  };
  const auto main = std::ranges::max_element(families, {}, num_sizes);
  if (main != families.end()) std::rotate(families.begin(), main, main + 1);
  // The others share the first one's data-parallel cells; a law of those alone would be told twice.
  for (size_t i = 1; i < families.size(); ++i) {
    if (num_sizes(families[i]) >= laws::kMinSizes) continue;
    families[i].fit.reset();
    families[i].held_out.clear();
  }
  return families;
}

}  // namespace atl::sweep
