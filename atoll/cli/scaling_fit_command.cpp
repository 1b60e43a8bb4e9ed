#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/fit_json.h"
#include "atoll/cli/scaling_command.h"
#include "atoll/cli/scaling_table_options.h"
#include "atoll/cli/whole_number.h"
#include "atoll/laws/chart.h"
#include "atoll/laws/fit.h"
#include "atoll/laws/fit_chart.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::FitReport;
using laws::Intervals;
using laws::with_interval;

constexpr const char* kFooter = R"(
FILE is a CSV table, a line for each trained model. Columns params, replicas (0: data-parallel)
and loss (nats per token) are needed; batch (tokens of a step, of all replicas), lr, outer_lr,
sync_every, method, tokens, flops and seed are read where they are. Of several runs of one size and
number of replicas the best counts; runs that differ in their seed alone are averaged. Laws go
through runs of one method, one sync_every and as many tokens a parameter (within 5 %): those with
the most sizes. The others are left out, and named.

Laws: loss = A N^alpha for each number of replicas, A N^alpha M^beta for all (M >= 1), and the four
forms of Scaling Laws for DiLoCo, Table 13. Residuals are of the largest size, fitted without it;
M=2 beside the joint law's: of two replicas.

Examples:
  atoll scaling fit runs.csv
  atoll scaling fit runs.csv --plot runs.svg --json > fit.json
  atoll scaling fit runs.csv --batch-unit 2048          batch counts sequences of 2048 tokens)";

struct FitArguments {
  std::string file;
  TableOptions table;
  laws::FitOptions options;
  std::string plot;
  bool has_plot = false;
  bool has_confidence = false;
  bool json = false;
};

constexpr int kMinRedraws = 20;  // Of fewer an interval's ends would be chance.

std::string residual_text(const laws::LeaveOneOut& residuals, double replicas) {
  if (replicas == 0) {
    const auto& one = residuals.data_parallel;
    return one ? fmt::format("{:.4f}", one->value) : "";
  }
  const auto found = residuals.independent.find(replicas);
  return found == residuals.independent.end() ? "" : fmt::format("{:.4f}", found->second);
}

void print_laws(const FitReport& report) {
  constexpr const char* kRow = "{:<14} {:<27} {:<30} {:<28} {}\n";
  fmt::print(kRow, "loss", "A", "alpha", "beta", "residual");
  for (const auto& [replicas, law] : report.loss.independent) {
    const Intervals intervals = report.loss_intervals.of(replicas);
    fmt::print(kRow, laws::replicas_name(replicas), with_interval(law.A(), intervals, 0),
               with_interval(law.alpha(), intervals, 1), "",
               residual_text(report.leave_one_out, replicas));
  }
  if (!report.loss.joint) return;
  const Intervals& intervals = report.loss_intervals.joint;
  std::vector<std::string> residuals;
  for (const auto& [replicas, residual] : report.leave_one_out.joint) {
    residuals.push_back(fmt::format("M={:g} {:.4f}", replicas, residual));
  }
  fmt::print(kRow, "joint", with_interval(report.loss.joint->A(), intervals, 0),
             with_interval(report.loss.joint->alpha(), intervals, 1),
             with_interval(report.loss.joint->beta(), intervals, 2), fmt::join(residuals, ", "));
}

void print_forms(const FitReport& report) {
  if (report.parametric.empty()) return;
  fmt::print("\n{:<16} {:<9} {}\n", "form", "residual", "coefficients");
  for (const laws::HeldOutForm& form : report.parametric) {
    const std::vector<std::string> names = form.fit.names();
    std::string text;
    for (size_t i = 0; i < names.size(); ++i) {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", names[i],
                          with_interval(form.fit.coefficients()[i], form.intervals, i));
    }
    fmt::print("{:<16} {:<9.4f} {}\n", form.fit.form().name, form.residual, text);
  }
}

void print_optima(const char* name, const char* unit, const laws::Optima& optima,
                  const laws::PowerLaws& laws) {
  if (optima.points.empty()) return;
  fmt::print("\nbest {} ({}), {} sweep{}\n", name, unit, optima.points.size(),
             optima.points.size() == 1 ? "" : "s");
  const auto print_law = [](const std::string& title, const laws::PowerLaw& law) {
    fmt::print("  {:<14} A {:.4g}, alpha {:.4f}{}\n", title, law.A(), law.alpha(),
               law.joint() ? fmt::format(", beta {:.4f}", law.beta()) : "");
  };
  for (const auto& [replicas, law] : laws.independent) {
    print_law(laws::replicas_name(replicas), law);
  }
  if (laws.joint) print_law("joint", *laws.joint);
}

void print_report(const FitArguments& arguments, const FitReport& report) {
  fmt::print("{} points, N {} to {:.4g}; loss in nats per token", report.points.size(),
             arguments.table.count == "papers" ? "counted as the papers do," : "as `params` says,",
             report.largest);
  if (arguments.options.bootstrap > 0) {
    fmt::print("; [{:g} % of {} redraws]", 100 * arguments.options.confidence,
               arguments.options.bootstrap);
  }
  fmt::print("\n\n");
  print_laws(report);
  print_forms(report);
  print_optima("batch", "tokens of all replicas", report.batch_optima, report.batch);
  print_optima("inner learning rate", "peak", report.lr_optima, report.lr);
  for (const auto& [replicas, rate] : report.outer_lr) {
    fmt::print("best outer learning rate, {}: {:.3g} ({:g} to {:g})\n",
               laws::replicas_name(replicas), rate.mean, rate.low, rate.high);
  }
  if (!report.compute.empty()) fmt::print("\n");
  for (const auto& [replicas, line] : report.compute) {
    fmt::print("loss of {}: {:.4f} {:+.5f} ln(flops)\n", laws::replicas_name(replicas),
               line.intercept, line.slope);
  }
}

void check(const FitArguments& arguments) {
  const int redraws = arguments.options.bootstrap;
  if (redraws > 0 && redraws < kMinRedraws) {
    throw UsageError(
        fmt::format("--bootstrap must be 0, or {} redraws and more: of {} an interval says nothing",
                    kMinRedraws, redraws));
  }
  if (arguments.has_confidence && redraws == 0 && !arguments.has_plot) {
    throw UsageError("--confidence has no effect with --bootstrap 0 and without --plot");
  }
  if (arguments.has_plot) {
    // Refuses the name before the work.
    if (!arguments.plot.empty()) laws::chart_file({}, arguments.plot);
    require_output_file(arguments.plot, "--plot");
  }
}

void fit(FitArguments& arguments) {
  check(arguments);
  const laws::Table table = arguments.table.load(arguments.file);
  const laws::Comparable compared = compared_runs(arguments.file, table);
  const FitReport report = laws::fit_runs(compared.runs, arguments.options);
  for (const laws::Refusal& refusal : report.refused) {
    fmt::print(stderr, "atoll: not fitted: {}: {}\n", refusal.what, refusal.reason);
  }
  for (const std::string& warning : laws::growth_warnings(report.loss)) {
    fmt::print(stderr, "atoll: warning: {}\n", warning);
  }
  if (!table.ignored.empty()) {
    fmt::print(stderr, "atoll: columns without a meaning here: {}\n",
               fmt::join(table.ignored, ", "));
  }
  if (arguments.has_plot) {
    write_file_atomically(
        arguments.plot,
        laws::chart_file(laws::fit_chart(report, arguments.options.confidence), arguments.plot));
  }
  if (arguments.json) {
    Json json =
        fit_json(report, arguments.options,
                 arguments.table.count == "papers" ? kPapersCount : kColumnCount, table.runs);
    add_comparable_json(json, compared);
    json["ignored_columns"] = table.ignored;
    fmt::print("{}\n", json.dump());
  } else {
    print_report(arguments, report);
  }
}

}  // namespace

void add_scaling_fit(CLI::App& scaling) {
  CLI::App* command = scaling.add_subcommand("fit", "Fit scaling laws to a table of runs");
  const auto arguments = std::make_shared<FitArguments>();
  command->add_option("file", arguments->file, "A CSV table, or what `fit --json` printed")
      ->required();
  add_table_options(*command, arguments->table);
  command
      ->add_option(
          "--bootstrap", arguments->options.bootstrap,
          fmt::format("Redraws of the residuals for intervals, {} or more; 0: none", kMinRedraws))
      ->capture_default_str()
      ->check(whole_number<int>(0, 100'000));
  CLI::Option* confidence =
      command
          ->add_option("--confidence", arguments->options.confidence, "Of intervals and the band")
          ->capture_default_str()
          ->check(real_number(0.5, 0.999));
  command
      ->add_option("--starts", arguments->options.parametric.num_starts,
                   "Random starts of each form's search")
      ->capture_default_str()
      ->check(whole_number<int>(1, 100'000));
  command
      ->add_option("--huber-delta", arguments->options.parametric.huber_delta,
                   "Where the forms' loss turns from quadratic to linear, in ln(loss)")
      ->capture_default_str()
      ->check(real_number(1e-6, 10));
  command->add_option("--seed", arguments->options.parametric.seed, "Of starts and redraws")
      ->capture_default_str()
      ->check(whole_number<uint64_t>(0));
  CLI::Option* plot = command->add_option("--plot", arguments->plot,
                                          "Write a picture: laws, points, bands (.svg or .html)");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(kFooter);
  command->callback([arguments, confidence, plot] {
    arguments->has_confidence = confidence->count() > 0;
    arguments->has_plot = plot->count() > 0;
    fit(*arguments);
  });
}

}  // namespace atl::cli
