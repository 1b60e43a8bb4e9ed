#pragma once
// Which runs one law can go through: those of one method, one sync_every and as many tokens for
// each parameter. A table holds more than that where it keeps what a study tried beside (more
// tokens, other periods), and a better loss there says nothing about size or replicas. The same
// rule tells the families of a sweep apart (sweep_results.h). Pure.
#include <compare>
#include <span>
#include <string>
#include <vector>

#include "atoll/laws/table.h"

namespace atl::laws {

/// What runs must have in common.
struct RunKind {
  bool replicated = false;  // Else data-parallel: of these the tokens alone count.
  std::string method;       // Empty: not said.
  double sync_every = 0;    // Inner steps; 0: not said, or the method has none.
  double tokens = 0;        // For each parameter, or beside what is usual; 0: not said.

  auto operator<=>(const RunKind&) const = default;
};

/// A run of that kind belongs to those of `kind`: data-parallel ones to all of as many tokens.
bool goes_with(const RunKind& run, const RunKind& kind);

/// The kinds that runs are of, each once and in order: those with replicas, then data-parallel ones
/// that go with none of them. Throws InputError when there are more than kMaxKinds.
std::vector<RunKind> kinds_of(std::span<const RunKind> runs);
constexpr size_t kMaxKinds = 1000;

/// Rows that no law goes through, for one reason.
struct LeftOut {
  std::vector<size_t> lines;  // Of the table.
  std::string reason;         // "sync_every 1 (most runs: sync_every 30)".
};

struct Comparable {
  RunKind kind;
  std::vector<Run> runs;  // In the table's order.
  std::vector<LeftOut> left_out;
};

/// The largest ratio of two runs' tokens for each parameter.
constexpr double kTokensSpread = 1.05;

/// Of a table's runs those of the kind with the most sizes; of as many, with the most rows.
/// Throws InputError, naming lines, where no kind has most, and where runs of one size have other
/// flops and the table does not say tokens.
Comparable comparable_runs(const std::vector<Run>& runs);

/// "lines 5 and 9 are left out: sync_every 1 (most runs: sync_every 30)".
std::string left_out_text(const LeftOut& left_out);

}  // namespace atl::laws
