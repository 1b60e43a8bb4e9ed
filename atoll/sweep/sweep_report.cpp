#include "atoll/sweep/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/progress.h"

namespace atl::sweep {
namespace {

using laws::with_interval;

std::string off_text(const std::optional<double>& predicted, double trained) {
  if (!predicted) return "| - | - ";
  return fmt::format("| {:.4f} | {:+.2f} % ", *predicted, 100 * (*predicted / trained - 1));
}

std::string ends_text(const CellState& state) {
  std::string text;
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    const std::string one = axis_text(static_cast<Axis>(axis), state.axes[axis]);
    if (!one.empty()) text += (text.empty() ? "" : "; ") + one;
  }
  return text.empty() ? "nothing swept" : text;
}

std::string cell_row(const GridCell& cell, const ResultRules& rules) {
  std::string row =
      fmt::format("| {} | {} | {:.0f} | {} | {} | {} | {:g} |", cell.grid, cell.cell.size,
                  rules.size(cell.cell.size).params, cell.cell.replicas, cell.cell.method,
                  cell.cell.sync_every > 0 ? fmt::format("{}", cell.cell.sync_every) : "-",
                  cell.cell.tokens_factor);
  if (!cell.state.best) return row + fmt::format(" | | | | | {} |\n", without_best_text(cell));
  const BestPlace& best = *cell.state.best;
  const auto value = [&](Axis axis) {
    return best.point.at[axis] > 0 ? laws::number_text(best.point.at[axis]) : "-";
  };
  row += fmt::format(
      " {} | {} | {} | {:.4f} | {} |", value(kLr), value(kOuterLr), value(kBatchTokens), best.loss,
      best.num_seeds > 1 ? fmt::format("{:.4f}, {} seeds", best.deviation, best.num_seeds) : "-");
  const std::string failed = failed_seeds_text(best);
  return row + " " + ends_text(cell.state) + (failed.empty() ? "" : "; " + failed) + " |\n";
}

std::string laws_text(const Family& family) {
  const laws::FitReport& fit = *family.fit;
  std::string text = fmt::format(
      "## Laws: {}\n\nloss = A N^alpha, jointly A N^alpha M^beta; 95 % of redraws of the "
      "residuals.\n\n"
      "| law | A | alpha | beta |\n|---|---|---|---|\n",
      family.name);
  for (const auto& [replicas, law] : fit.loss.independent) {
    const laws::Intervals intervals = fit.loss_intervals.of(replicas);
    text +=
        fmt::format("| {} | {} | {} | |\n", laws::replicas_name(replicas),
                    with_interval(law.A(), intervals, 0), with_interval(law.alpha(), intervals, 1));
  }
  if (fit.loss.joint) {
    const laws::Intervals& intervals = fit.loss_intervals.joint;
    text +=
        fmt::format("| joint | {} | {} | {} |\n", with_interval(fit.loss.joint->A(), intervals, 0),
                    with_interval(fit.loss.joint->alpha(), intervals, 1),
                    with_interval(fit.loss.joint->beta(), intervals, 2));
  }
  for (const std::string& warning : laws::growth_warnings(fit.loss)) {
    text += fmt::format("\nWarning: {}.\n", warning);
  }
  if (!family.held_out.empty()) {
    text +=
        "\nThe largest size, predicted from the others:\n\n"
        "| size | N | replicas | trained | its own law | off | joint law | off |\n"
        "|---|---|---|---|---|---|---|---|\n";
    for (const HeldOutLoss& one : family.held_out) {
      text += fmt::format("| {} | {:.0f} | {:.0f} | {:.4f} {}{}|\n", one.size, one.params,
                          one.replicas, one.trained, off_text(one.independent, one.trained),
                          off_text(one.joint, one.trained));
    }
  }
  return text;
}

std::string forms_text(const laws::FitReport& fit) {
  if (fit.parametric.empty()) return {};
  std::string text =
      "\nForms, fitted without the largest size; the residual is |ln loss - ln predicted| "
      "there:\n\n"
      "| form | residual | coefficients |\n|---|---|---|\n";
  for (const laws::HeldOutForm& form : fit.parametric) {
    const std::vector<std::string> names = form.fit.names();
    std::string coefficients;
    for (size_t i = 0; i < names.size(); ++i) {
      coefficients += fmt::format("{}{} {}", i == 0 ? "" : ", ", names[i],
                                  with_interval(form.fit.coefficients()[i], form.intervals, i));
    }
    text +=
        fmt::format("| {} | {:.4f} | {} |\n", form.fit.form().name, form.residual, coefficients);
  }
  return text;
}

std::string optima_text(const char* name, const laws::Optima& optima, const laws::PowerLaws& laws) {
  if (optima.points.empty()) return {};
  std::string text = fmt::format(
      "\nBest {}, the minimum of a parabola over its logarithm:\n\n| N | replicas | {} "
      "|\n|---|---|---|\n",
      name, name);
  for (const laws::Point& point : optima.points) {
    text +=
        fmt::format("| {:.0f} | {:.0f} | {:.4g} |\n", point.params, point.replicas, point.value);
  }
  for (const auto& [replicas, law] : laws.independent) {
    text +=
        fmt::format("\n{}: {:.4g} N^{:.4f}\n", laws::replicas_name(replicas), law.A(), law.alpha());
  }
  if (laws.joint) {
    text += fmt::format("\njoint: {:.4g} N^{:.4f} M^{:.4f}\n", laws.joint->A(), laws.joint->alpha(),
                        laws.joint->beta());
  }
  return text;
}

std::string not_interior_text(const SweepState& state) {
  std::string text;
  for (const GridCell& cell : state.cells) {
    const std::string name = fmt::format("- grid '{}', {}: ", cell.grid, cell_name(cell.cell));
    if (!cell.blocked.empty()) text += fmt::format("{}{}\n", name, cell.blocked);
    if (cell.state.num_failed > 0) {
      text += fmt::format("{}{} of {} points failed\n", name, cell.state.num_failed,
                          cell.state.points.size());
    }
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      const AxisState& one = cell.state.axes[axis];
      if (one.end != AxisEnd::kLow && one.end != AxisEnd::kHigh && !one.beside_failed) continue;
      text += fmt::format("{}{}\n", name, axis_text(static_cast<Axis>(axis), one));
    }
  }
  if (text.empty()) return {};
  return "## To be read with care\n\nCells whose best place is at a border, or lies beside points "
         "that "
         "failed:\n\n" +
         text + "\n";
}

}  // namespace

std::string axis_text(Axis axis, const AxisState& state) {
  const char* name = kAxisNames[axis];
  std::string beside = state.beside_failed ? ", beside a point that failed" : "";
  if (state.beside_lesser) beside += ", a neighbour left behind with fewer tokens";
  switch (state.end) {
    case AxisEnd::kUnused:
    case AxisEnd::kFixed:
      return {};
    case AxisEnd::kInterior:
      return fmt::format("{} interior{}", name, beside);
    case AxisEnd::kLow:
    case AxisEnd::kHigh:
      break;
  }
  const bool is_low = state.end == AxisEnd::kLow;
  return fmt::format("{} at its {}, {}{}{}: {}", name, is_low ? "smallest" : "largest",
                     laws::number_text(is_low ? state.low : state.high),
                     state.extensions > 0 ? fmt::format(", after {} extension{}", state.extensions,
                                                        state.extensions == 1 ? "" : "s")
                                          : "",
                     beside, state.limit);
}

std::string without_best_text(const GridCell& cell) {
  if (!cell.blocked.empty()) return cell.blocked;
  if (cell.state.done) return "all points failed";
  if (!cell.waits.empty()) return "not finished, it waits for " + cell.waits;
  const size_t num_asked = cell.state.points.size();
  return fmt::format("not finished, {} of {} points so far", num_asked - cell.state.wanted.size(),
                     num_asked);
}

std::string failed_seeds_text(const BestPlace& best) {
  if (best.num_failed == 0) return {};
  return fmt::format("{} of {} seeds failed", best.num_failed, best.num_seeds + best.num_failed);
}

std::string point_text(const SweepPoint& point) {
  std::string text = place_name(point);
  if (point.tokens_share != 1) text += fmt::format(", {:g} of the tokens", point.tokens_share);
  return text + fmt::format(", seed {}", point.seed);
}

std::string sweep_report(const SweepTotals& totals, const SweepState& state,
                         const std::vector<Family>& families,
                         const std::vector<FailedPoint>& failed, const ResultRules& rules) {
  std::string text = fmt::format(
      "# Sweep {}\n\n{} points, {} of them failed; {} tokens in {} core-hours. N: {}. Loss in nats "
      "per "
      "token, of the validation part.\n\n",
      totals.name, totals.num_points, failed.size(), format_count(totals.tokens),
      fmt::format("{:.2f}", totals.core_seconds / 3600), totals.count);
  if (totals.num_missing > 0) {
    text +=
        fmt::format("**Not finished**: {} points that were asked for are missing.{}\n\n",
                    totals.num_missing, totals.shortage.empty() ? "" : " " + totals.shortage + ".");
  }
  text +=
      "## Best settings\n\n"
      "| grid | size | N | replicas | method | H | tokens x | lr | outer lr | batch tokens | loss "
      "| "
      "deviation | the best place |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const GridCell& cell : state.cells) text += cell_row(cell, rules);
  text +=
      "\nInterior: along each axis by itself. Where settings depend on each other, as lr and "
      "batch_tokens do, a better place may lie diagonal to the best; search = \"grid\" trains all "
      "places that are given.\n\n";
  text += not_interior_text(state);
  for (const Family& family : families) {
    if (!family.fit) continue;
    text += laws_text(family) + forms_text(*family.fit);
    text += optima_text("batch in tokens", family.fit->batch_optima, family.fit->batch);
    text += optima_text("inner learning rate", family.fit->lr_optima, family.fit->lr);
    for (const laws::Refusal& refusal : family.fit->refused) {
      text += fmt::format("\nNot fitted: {}: {}\n", refusal.what, refusal.reason);
    }
    text += "\n";
  }
  if (std::ranges::none_of(families, [](const Family& family) { return family.fit.has_value(); })) {
    text += fmt::format("No law: one needs {} sizes.\n\n", laws::kMinSizes);
  }
  if (!failed.empty()) {
    text += "## Points that failed\n\n";
    for (const FailedPoint& one : failed) {
      text += fmt::format("{}\n\n```\n{}\n```\n\n", point_text(one.point), one.message);
    }
  }
  return text;
}

}  // namespace atl::sweep
