#pragma once
// A table of finished runs, as `atoll scaling fit` reads it: a CSV file of strangers' numbers. All
// that is not a number of the right kind is refused with its line. Plain values; no thread rule.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::laws {

/// One trained model. What a table does not say is absent.
struct Run {
  double params = 0;                 // As the table counts them.
  double replicas = 0;               // Whole; 0: data-parallel.
  double loss = 0;                   // Nats per token.
  std::optional<double> batch;       // Tokens of one step, of all replicas together.
  std::optional<double> lr;          // Peak inner learning rate.
  std::optional<double> outer_lr;    // Of the outer optimiser.
  std::optional<double> sync_every;  // Inner steps between two outer steps.
  std::optional<double> tokens;      // That the model was trained on.
  std::optional<double> flops;       // Of the whole training; else 6 * params * tokens.
  std::optional<double> seed;        // Rows that differ in nothing else are averaged.
  std::optional<double> layers, hidden, ff, vocab;  // The model's shape.
  std::string method;                               // As `atoll train` calls it; empty: not said.
  std::vector<size_t> lines;                        // Where it stands, from 1; seeds have several.
};

/// How parameters are counted.
enum class Count {
  kColumn,  // As the column `params` says.
  kPapers,  // From the shape: one embedding matrix, attention and MLP; no norms.
};

/// The parameter count that the published laws were fitted with (Scaling Laws for DiLoCo):
/// vocab * hidden + layers * (4 hidden^2 + 2 hidden ff).
double papers_params(double layers, double hidden, double ff, double vocab);

struct ReadOptions {
  Count count = Count::kColumn;
  double batch_unit_tokens = 1;  // What one of column `batch` is: the sequence length, or 1.
};

/// What was read.
struct Table {
  std::vector<Run> runs;             // In the order of the file; seeds are averaged.
  std::vector<std::string> ignored;  // Columns that mean nothing here.
};

constexpr size_t kMaxTableBytes = size_t{32} << 20;
constexpr size_t kMaxRuns = 100'000;
constexpr size_t kMaxColumns = 100;

/// Parses a CSV text: a line of names, then numbers; lines that begin with # and empty ones are
/// skipped, empty cells of optional columns are absent values. `where` (a file) is for messages.
/// Throws InputError: no or too many rows, a missing column (named), a repeated one, what is not a
/// finite positive number, a duplicate of a row, or a row that contradicts another.
Table parse_table(std::string_view text, const std::string& where, const ReadOptions& options = {});

/// Reads a CSV file, or the JSON object that `atoll scaling fit --json` printed. Throws InputError;
/// also when the file is larger than kMaxTableBytes.
Table read_table(const std::filesystem::path& file, const ReadOptions& options = {});

/// The runs as CSV, as parse_table() reads it, with the columns that any of them has.
std::string table_text(const std::vector<Run>& runs);

/// Of the runs of each (params, replicas) the one with the smallest loss, sorted by both. The runs
/// must compare (comparable.h).
std::vector<Run> best_runs(const std::vector<Run>& runs);

/// The text of a value as a table writes it: the shortest that reads the same.
std::string number_text(double value);

}  // namespace atl::laws
