#include "atoll/cli/bench_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/cli/bench_machine.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/plan_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/plan/machine_report.h"
#include "atoll/swarm/rules.h"

namespace atl::cli {
namespace {

constexpr const char* kFooter = R"(
What is measured, each in a process of its own:
  products   of matrices in FP32 and BF16, by LibTorch's function and by Atoll's choice; the peak
             is the fastest of some shapes
  memory     how much there is, and how fast a large copy is (bytes read and written)
  loopback   frames of Atoll's transport between two ends here, in the clear and encrypted: what
             the processor allows, which no line exceeds
  line       to --coordinator, where `atoll coordinate` waits or runs, as `atoll plan --measure`
  training   whole steps (forward, backward, clip, AdamW) of models on random tokens, median, in
             each train.precision; peak memory is the process's, or of a device what its
             allocator gave out

Share of peak: tokens/s x operations of a token, over the fastest product in the same precision.
Operations of a token: 6 for each parameter of a matrix that it is multiplied with (an embedding
that is only looked up does not count, nor do norms) and 12 x head size x heads x layers x mean
number of positions that a query sees, (T + 1) / 2 without a window. What is computed twice to
save memory counts once.

It takes some minutes, with --quick about one; nothing else should run meanwhile.

Examples:
  atoll bench
  atoll bench --quick --sizes demo,34m --threads 1
  atoll bench --device cuda --json
  atoll bench --coordinator 127.0.0.1:7070)";

struct Arguments {
  BenchOptions options;
  std::string sizes;
  bool json = false;
};

/// Those that `list` names; empty: all.
std::vector<BenchSize> sizes_of(const std::string& list) {
  if (list.empty()) return bench_sizes();
  std::vector<BenchSize> chosen;
  for (const std::string& name : CLI::detail::split(list, ',')) {
    std::vector<std::string> names;
    const size_t before = chosen.size();
    for (const BenchSize& size : bench_sizes()) {
      names.push_back(size.name);
      if (size.name == name) chosen.push_back(size);
    }
    if (chosen.size() == before) {
      throw UsageError(fmt::format("--sizes: there is no size '{}'; there are {}", name,
                                   fmt::join(names, ", ")));
    }
  }
  return chosen;
}

nlohmann::ordered_json report_json(const plan::MachineReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = json_of<Json>(report.peak);
  json["name"] = report.name.empty() ? Json() : Json(report.name);
  json["training"] = json_of<Json>(report.steps);
  json["loopback"] = json_of<Json>(report.loopback);
  json["line"] = Json();
  if (report.line) {
    json["line"] = {{"up_bits_per_s", report.line->up_bits_per_s},
                    {"down_bits_per_s", report.line->down_bits_per_s},
                    {"round_trip_s", report.line->round_trip_s},
                    {"is_lower_bound", report.line->is_window_full}};
  }
  return json;
}

void bench(Arguments arguments) {
  const SystemClock clock;
  watch_interrupts();
  BenchOptions& options = arguments.options;
  options.sizes = sizes_of(arguments.sizes);
  options.requires_all = !arguments.sizes.empty();
  const std::string here = swarm::is_valid_name(machine_name()) ? machine_name() : "here";
  // The line first: it fails sooner.
  const auto line = measure_line(options.line, here, clock);
  plan::MachineReport report = measure_all(options, clock);
  report.line = line;
  if (arguments.json) {
    fmt::print("{}\n", report_json(report).dump());
  } else {
    fmt::print("{}", plan::report_text(report));
  }
}

/// The other program has it, its options and its help.
void add_torch_subcommand(CLI::App& command, const char* name, const char* description,
                          char** argv) {
  CLI::App* one = command.add_subcommand(name, description);
  one->set_help_flag();
  one->allow_extras();
  one->prefix_command();
  one->callback([argv] { become_torch_program(argv); });
}

}  // namespace

void add_bench_command(CLI::App& app, char** argv) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure this machine: products, training, memory, network");
  const auto arguments = std::make_shared<Arguments>();
  BenchOptions& options = arguments->options;
  command->add_option("--device", options.device, "cpu, cuda, cuda:1, ... (default: cpu)");
  command->add_option("--threads", options.threads, "CPU threads (default: all cores)")
      ->check(whole_number<int64_t>(1, 4096));
  command->add_option("--sizes", arguments->sizes,
                      "models to train, with commas between: demo (4 M parameters), 34m, 135m "
                      "(default: those that fit)");
  command->add_flag("--quick", options.quick, "fewer steps and shorter slices, without 135m");
  command->add_option("--coordinator", options.line.coordinator,
                      "HOST:PORT, or an invite (\"-\": read from stdin, @FILE: from a file), to "
                      "measure the line to it");
  command->add_option("--run", options.line.run,
                      "the folder of a member of an encrypted run; with an invite this machine "
                      "becomes one there");
  command->add_flag("--insecure", options.line.insecure,
                    "allow addresses beyond this machine, unencrypted");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->require_subcommand(0, 1);
  add_torch_subcommand(*command, "train-step", "Tokens per second of whole training steps", argv);
  add_torch_subcommand(*command, "peak", "Products of matrices and copies, without a model", argv);
  command->footer(kFooter);
  command->callback([command, arguments] {
    if (command->get_subcommands().empty()) bench(*arguments);
  });
}

}  // namespace atl::cli
