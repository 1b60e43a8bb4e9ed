#pragma once
// The options of commands that read a table of runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "atoll/base/error.h"
#include "atoll/cli/real_number.h"
#include "atoll/laws/comparable.h"
#include "atoll/laws/table.h"

namespace atl::cli {

struct TableOptions {
  laws::ReadOptions read;
  std::string count = "column";

  laws::Table load(const std::string& file) {
    read.count = count == "papers" ? laws::Count::kPapers : laws::Count::kColumn;
    return laws::read_table(file, read);
  }
};

/// `file`: the option that names the table, where it is one; they mean nothing without it.
inline void add_table_options(CLI::App& command, TableOptions& options,
                              CLI::Option* file = nullptr) {
  CLI::Option* count =
      command
          .add_option("--count", options.count,
                      "What counts as parameters: column (as `params` says), or papers (from the "
                      "columns layers, hidden, ff, vocab, as the published laws count)")
          ->capture_default_str()
          ->check(CLI::IsMember({"column", "papers"}));
  CLI::Option* unit =
      command
          .add_option("--batch-unit", options.read.batch_unit_tokens,
                      "Tokens that one of column `batch` stands for: the sequence length where it "
                      "counts sequences")
          ->capture_default_str()
          ->check(real_number(1, 1e9));
  if (file == nullptr) return;
  count->needs(file);
  unit->needs(file);
}

/// The runs of `file` that laws can go through; what is left out is said. Throws InputError naming
/// the file.
inline laws::Comparable compared_runs(const std::string& file, const laws::Table& table) {
  try {
    laws::Comparable compared = laws::comparable_runs(table.runs);
    for (const laws::LeftOut& one : compared.left_out) {
      fmt::print(stderr, "atoll: {}\n", laws::left_out_text(one));
    }
    return compared;
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", file, error.what()));
  }
}

}  // namespace atl::cli
