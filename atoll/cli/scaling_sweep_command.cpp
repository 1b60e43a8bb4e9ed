#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/base/progress.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/scaling_command.h"
#include "atoll/cli/sweep_output.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/mixture.h"
#include "atoll/run/prepare_data.h"
#include "atoll/run/run_folder.h"
#include "atoll/sweep/local_executor.h"
#include "atoll/sweep/point_files.h"
#include "atoll/sweep/slurm_executor.h"
#include "atoll/sweep/sweep_driver.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResultsText = "points.jsonl";  // From which points.db can be made again.

constexpr const char* kFooter = R"(
SWEEP.toml names sizes and grids; every combination of a grid is trained, and grids are extended
until the best is interior. docs/scaling_sweep.md explains it. What is finished is kept in the
folder and never trained again; a sweep that was stopped or killed goes on by the same command.
Ctrl-C stops in good order: what runs keeps its state.

With a [slurm] table points are jobs of the cluster instead of processes on this machine: arrays of
sbatch. A second Ctrl-C, and a sweep that is killed, leave the jobs running; the same command finds
them again.

A small one:
  [settings.data]
  path = "corpus.txt"
  [settings.train]
  sequence_length = 64
  [settings.model]
  max_positions = 64
  [sizes.small]
  hidden_size = 32
  num_layers = 2
  [sizes.large]
  hidden_size = 64
  num_layers = 4
  [[grid]]
  name = "rates"
  replicas = [0, 2]
  lr = [1e-3, 2e-3, 4e-3]
  outer_lr = [0.4, 0.6, 0.8]
  sync_every = 30
  batch_tokens = 2048
  [slurm]             # Only where there is Slurm. All may be left out.
  partition = "long"
  time = "1:00:00"
  mem = "4G"
  cpus_per_task = 2
  max_running = 16
  extra = ["--account=ours"]

Examples:
  atoll scaling sweep sweep.toml --dry-run
  atoll scaling sweep sweep.toml --cores 8 --memory 16GB
  atoll scaling sweep sweep.toml --import points.jsonl --export points.jsonl)";

struct SweepArguments {
  std::string file;
  std::string folder;
  std::string imported;
  std::string exported;
  std::string memory;
  int64_t cores = 0;  // 0: all.
  bool local = false;
  bool dry_run = false;
  bool report = false;
  bool retry = false;
  bool keep = false;
  bool json = false;
};

double bytes_of(const std::string& text) {
  const auto bytes = parse_quantity(text, kByteUnits);
  if (bytes && *bytes >= 1e6 && *bytes <= 1e18) return *bytes;  // Less is a slip of the unit.
  throw UsageError(fmt::format("--memory must be a size, as in 8GB or 500MB, not '{}'", text));
}

fs::path folder_of(const SweepArguments& arguments) {
  if (!arguments.folder.empty()) return arguments.folder;
  return fs::path("sweeps") / fs::path(arguments.file).stem();
}

/// Where points are trained.
struct Workplace {
  std::optional<sweep::SlurmOptions> slurm;  // Nothing: on this machine.
  sweep::LocalBudget budget;                 // Of this machine; in Slurm as far as it is known.
  int64_t point_cores = 0;                   // That one point may keep busy.
};

Workplace workplace_of(const SweepArguments& arguments, const sweep::SweepSpec& spec) {
  if (spec.slurm && !arguments.local) {
    if (arguments.cores > 0 || !arguments.memory.empty()) {
      throw UsageError(fmt::format(
          "--cores and --memory are about this machine, and '{}' has [slurm]: give max_running, "
          "cpus_per_task and mem there, or --local",
          arguments.file));
    }
    constexpr int64_t kAnyCores = 100'000;
    const sweep::SlurmOptions slurm = sweep::read_slurm_options(*spec.slurm, arguments.file);
    const int64_t cores = std::max<int64_t>(1, slurm.cpus_per_task);
    return {.slurm = slurm,
            .budget = {.cores = std::max<int64_t>(1, slurm.max_running) * cores},
            .point_cores = slurm.cpus_per_task > 0 ? cores : kAnyCores};
  }
  if (arguments.local && !spec.slurm) {
    throw UsageError(fmt::format("--local: '{}' has no [slurm]", arguments.file));
  }
  Workplace place{.budget = sweep::whole_machine()};
  if (arguments.cores > 0) place.budget.cores = arguments.cores;
  if (!arguments.memory.empty()) place.budget.memory_bytes = bytes_of(arguments.memory);
  place.point_cores = place.budget.cores;
  return place;
}

std::unique_ptr<sweep::PointExecutor> executor_of(const Workplace& place, const fs::path& folder,
                                                  const Clock& clock) {
  const std::string program = sibling_program("atoll");
  const fs::path arrays = folder / "slurm";
  if (place.slurm) {
    return std::make_unique<sweep::SlurmExecutor>(program, arrays, *place.slurm, clock);
  }
  if (!sweep::SlurmArray::find(arrays).empty()) {
    throw InputError(
        fmt::format("jobs of this sweep may still run under Slurm: go on with its [slurm] (Ctrl-C "
                    "ends them), or delete '{}' when none does",
                    arrays.string()));
  }
  return std::make_unique<sweep::LocalExecutor>(program, place.budget);
}

/// The store as far as it is there, for what packs none; whether it is.
bool use_existing_store(sweep::SweepSettings& settings, const fs::path& folder) {
  const fs::path text = settings.common().data.path;
  const auto path = run::find_store(settings.common(), folder, {});
  if (!path) {
    if (text.empty() || fs::exists(text)) return false;
    throw InputError(fmt::format("[settings.data] path: there is no '{}'", text.string()));
  }
  const data::Mixture mixture = data::Mixture::open(*path);
  settings.use({fs::absolute(*path), mixture.digest(), mixture.vocab_size()});
  return true;
}

void print_outlook(const SweepArguments& arguments, const sweep::SweepDriver& driver,
                   const sweep::LocalBudget& budget) {
  const auto [cores, memory_bytes] = budget;
  const sweep::Outlook left = driver.outlook();
  size_t done = 0;
  for (const sweep::SweepPoint& point : driver.distinct(driver.state().points())) {
    done += driver.row(point) != nullptr ? 1 : 0;
  }
  if (arguments.json) {
    fmt::print("{}\n",
               nlohmann::ordered_json{{"done", done},
                                      {"points", left.num_points},
                                      {"tokens", left.tokens},
                                      {"core_seconds", left.core_seconds},
                                      {"seconds", left.core_seconds / static_cast<double>(cores)},
                                      {"is_timed", left.is_timed},
                                      {"largest_bytes", left.largest_bytes},
                                      {"too_large", left.num_too_large}}
                   .dump());
    return;
  }
  fmt::print(
      "points:  {} over, {} to be trained, extensions included, if the best of each cell stays "
      "where it is (at first the start)\n"
      "tokens:  {}\ntime:    {} on {} core{}{}\nmemory:  {} of the largest point\n",
      done, left.num_points, format_count(left.tokens),
      format_duration(left.core_seconds / static_cast<double>(cores)), cores, cores == 1 ? "" : "s",
      left.is_timed ? "" : ", a guess until a point has been timed",
      format_bytes(left.largest_bytes));
  if (left.num_too_large > 0) {
    fmt::print("         too much for the {} there are: {} of the {} would not be trained\n",
               format_bytes(memory_bytes), left.num_too_large, left.num_points);
  }
}

std::string points_of(size_t count) {
  return fmt::format("{} point{}", count, count == 1 ? "" : "s");
}

void import_points(const fs::path& file, const sweep::SweepSettings& settings,
                   sweep::SweepDatabase& database, const char* verb) {
  const std::vector<sweep::PointRow> rows = sweep::read_points(file);
  const sweep::Imported imported = database.import(rows);
  fmt::print(stderr, "atoll: {}: {} {}, {} known\n", file.string(), points_of(imported.added), verb,
             imported.known);
  if (imported.differ > 0) {
    fmt::print(stderr,
               "atoll: warning: another result there than here, which stays: {}, of another "
               "machine or program\n",
               points_of(imported.differ));
  }
  const auto strange = std::ranges::count_if(
      rows, [&](const sweep::PointRow& row) { return !settings.is_of_store(row.identity); });
  if (strange > 0) {
    fmt::print(stderr,
               "atoll: warning: {} of them are of other data than this sweep's: of no use to it\n",
               strange);
  }
}

/// Of the folder. Who only looks has a copy in memory: a dry run, which changes nothing, and a
/// report while another process sweeps, of what that has written down so far.
struct Results {
  std::unique_ptr<sweep::SweepDatabase> database;
  bool is_copy = false;
};

/// A point is never lost, nor trained twice, for want of an option: what is to be written is read.
void import_points(const SweepArguments& arguments, const fs::path& folder,
                   const sweep::SweepSettings& settings, const Results& results) {
  const char* verb = arguments.dry_run ? "would be added" : results.is_copy ? "read" : "added";
  sweep::SweepDatabase& database = *results.database;
  const fs::path kept = folder / kResultsText;
  if (database.rows().empty() && fs::exists(kept)) import_points(kept, settings, database, verb);
  if (!arguments.imported.empty()) import_points(arguments.imported, settings, database, verb);
  if (arguments.exported != arguments.imported && fs::exists(arguments.exported)) {
    import_points(arguments.exported, settings, database, verb);
  }
}

Results open_results(const SweepArguments& arguments, const fs::path& file) {
  Results copy{std::make_unique<sweep::SweepDatabase>(":memory:"), /*is_copy=*/true};
  if (arguments.dry_run && !fs::exists(file)) return copy;
  try {
    auto database = std::make_unique<sweep::SweepDatabase>(file);
    if (!arguments.dry_run) return {std::move(database)};
    for (const sweep::PointRow& row : database->rows()) copy.database->put(row);
  } catch (const sweep::DatabaseInUse&) {
    if (!arguments.dry_run && !arguments.report) throw;
    fmt::print(
        stderr,
        "atoll: another process sweeps in '{}': this is what it has finished so far; no file "
        "is written\n",
        file.parent_path().string());
  }
  return copy;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw InputError(
        fmt::format("cannot make the folder '{}': {}", folder.string(), error.message()));
  }
}

void sweep(const SweepArguments& arguments) {
  const SystemClock clock;
  const fs::path folder = folder_of(arguments);
  sweep::SweepSettings settings(sweep::read_sweep(arguments.file), arguments.file);
  const Workplace place = workplace_of(arguments, settings.spec());
  const sweep::SweepOptions options{.folder = folder,
                                    .exported = arguments.exported,
                                    .cores = place.point_cores,
                                    .memory_bytes = place.budget.memory_bytes,
                                    .keep = arguments.keep};
  if (!arguments.exported.empty()) require_output_file(arguments.exported, "--export");

  const fs::path database_file = folder / "points.db";
  const bool has_results = fs::exists(database_file) || fs::exists(folder / kResultsText);
  if (arguments.report && !has_results) {
    throw UsageError(fmt::format("--report: there is no sweep in '{}'", folder.string()));
  }
  const bool is_packed = use_existing_store(settings, folder);  // It may refuse: before all else.
  if (!arguments.dry_run && !arguments.report) {
    make_folder(folder);
    if (!is_packed) settings.use(sweep::prepare_sweep_store(settings, folder, clock));
  } else if (!is_packed) {
    constexpr const char* kNoData = "the text is not packed yet as the file says, or has changed";
    if (arguments.report) throw UsageError(fmt::format("--report: {}: run the sweep", kNoData));
    fmt::print(stderr,
               "atoll: {}: until it is, all points count as to be trained, finished and imported "
               "ones too\n",
               kNoData);
  }
  const Results results = open_results(arguments, database_file);
  import_points(arguments, folder, settings, results);
  sweep::SweepDriver driver(settings, *results.database, options);
  if (arguments.dry_run) {
    print_outlook(arguments, driver, place.budget);
    return;
  }
  bool is_complete = true;
  if (!arguments.report) {
    if (arguments.retry) driver.retry_failed();
    watch_interrupts();
    const auto executor = executor_of(place, folder, clock);
    driver.resume(*executor);
    is_complete = driver.train(*executor, clock);
  }
  if (!results.is_copy) driver.export_points();
  const SweepOutput output =
      sweep_output(fs::path(arguments.file).stem().string(), settings, driver);
  if (!results.is_copy) write_sweep_output(output, folder);
  if (arguments.json) {
    fmt::print("{}\n", output.json.dump());
  } else {
    fmt::print("{}", sweep_table(output));
    if (!results.is_copy) fmt::print("report: {}\n", (folder / "report.md").string());
  }
  if (!is_complete) {
    throw Interrupted("the sweep was stopped; it goes on by the same command");
  }
  if (output.num_points > 0 && output.num_failed == output.num_points) {
    throw InputError("all points failed: the report says why; --retry trains them again");
  }
  if (const std::string shortage = driver.shortage(); !shortage.empty() && !arguments.report) {
    throw InputError("the sweep is not finished: " + shortage);
  }
}

}  // namespace

void add_scaling_sweep(CLI::App& scaling) {
  CLI::App* command = scaling.add_subcommand(
      "sweep", "Train many small models: find their best settings, and fit laws to them");
  const auto arguments = std::make_shared<SweepArguments>();
  command->add_option("file", arguments->file, "What to sweep (TOML)")
      ->required()
      ->check(CLI::ExistingFile);
  const CLI::Validator not_empty(
      [](const std::string& text) { return text.empty() ? "must not be empty" : std::string(); },
      "");
  command
      ->add_option("--folder", arguments->folder,
                   "Where results and data are kept (default: sweeps/<name of the file>)")
      ->check(not_empty);
  command->add_option("--cores", arguments->cores, "That points keep busy together (default: all)")
      ->check(whole_number<int64_t>(1, 100'000));
  command
      ->add_option("--memory", arguments->memory,
                   "That points take together, as in 8GB (default: nine tenths of the machine's)")
      ->check(not_empty);
  command
      ->add_option("--import", arguments->imported,
                   "Take over the finished points of this points.jsonl first")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--export", arguments->exported,
                   "Keep the finished points in this file too, as in the folder's points.jsonl; "
                   "those it has are taken over first")
      ->check(not_empty);
  command->add_flag("--local", arguments->local, "Use this machine though the file has [slurm]");
  auto* dry = command->add_flag("--dry-run", arguments->dry_run,
                                "Say how many points, tokens and hours are left, and end");
  auto* report = command->add_flag(
      "--report", arguments->report,
      "Only write the report again; of a sweep that runs, print what it has so far");
  dry->excludes(report);
  command->add_flag("--retry", arguments->retry, "Train points again that failed")
      ->excludes(dry)
      ->excludes(report);
  command->add_flag("--keep", arguments->keep, "Keep the run directories of finished points");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(kFooter);
  command->callback([arguments] { sweep(*arguments); });

  CLI::App* point =
      scaling.add_subcommand("point", "Train one point of a sweep: what a sweep itself starts");
  const auto folder = std::make_shared<std::string>();
  point->add_option("folder", *folder, "The point's folder, with its settings.toml")->required();
  point->callback([folder] {
    watch_interrupts();
    sweep::train_point(sibling_program("atoll"), *folder);
    // A point that was asked to stop is not done: who started it must be able to tell.
    if (!sweep::read_point_result(*folder)) {
      throw Interrupted("the point was stopped; it goes on when it is started again");
    }
  });
}

}  // namespace atl::cli
