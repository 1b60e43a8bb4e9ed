#include "atoll/laws/comparable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "atoll/base/error.h"

namespace atl::laws {
namespace {

constexpr size_t kMaxNamedLines = 8;
constexpr size_t kMaxNamedKinds = 5;

std::string lines_text(const std::vector<size_t>& lines) {
  if (lines.empty()) return "rows";  // Of no table.
  if (lines.size() == 1) return fmt::format("line {}", lines[0]);
  if (lines.size() > kMaxNamedLines) {
    return fmt::format("lines {} and {} more",
                       fmt::join(lines.begin(), lines.begin() + kMaxNamedLines, ", "),
                       lines.size() - kMaxNamedLines);
  }
  return fmt::format("lines {} and {}", fmt::join(lines.begin(), lines.end() - 1, ", "),
                     lines.back());
}

/// For each run how many tokens it had for each parameter, as the median of those that are within
/// kTokensSpread of each other; 0: not said. The largest such group is found first, so that it is
/// not cut in two by a run beside it.
std::vector<double> grouped_tokens(const std::vector<Run>& runs) {
  std::vector<std::pair<double, size_t>> ratios;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].tokens) ratios.emplace_back(*runs[i].tokens / runs[i].params, i);
  }
  std::ranges::sort(ratios);
  std::vector<double> grouped(runs.size());
  std::vector<std::span<const std::pair<double, size_t>>> left = {ratios};
  size_t num_groups = 0;
  while (!left.empty()) {
    const auto part = left.back();
    left.pop_back();
    if (part.empty()) continue;
    if (++num_groups > kMaxKinds) {
      throw InputError(
          "almost every run has another number of tokens for each parameter, so that "
          "none compare");
    }
    size_t best = 0;
    size_t best_size = 0;
    for (size_t begin = 0, end = 0; begin < part.size(); ++begin) {
      while (end < part.size() && part[end].first <= kTokensSpread * part[begin].first) ++end;
      if (end - begin > best_size) std::tie(best, best_size) = std::pair(begin, end - begin);
    }
    const auto group = part.subspan(best, best_size);
    for (const auto& [ratio, run] : group) grouped[run] = group[group.size() / 2].first;
    left.push_back(part.subspan(best + best_size));
    left.push_back(part.first(best));
  }
  return grouped;
}

std::vector<RunKind> kinds_of_runs(const std::vector<Run>& runs) {
  const std::vector<double> tokens = grouped_tokens(runs);
  std::vector<RunKind> kinds;
  for (size_t i = 0; i < runs.size(); ++i) {
    RunKind kind{.replicated = runs[i].replicas >= 1, .tokens = tokens[i]};
    if (kind.replicated) {
      kind.method = runs[i].method;
      kind.sync_every = runs[i].sync_every.value_or(0);
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

/// Where a table has flops and no tokens, sizes may be names ("1B") and tokens cannot be reckoned.
/// But of one size all must have had as many.
void require_equal_flops(const std::vector<Run>& runs) {
  std::map<double, std::pair<const Run*, const Run*>> by_size;  // The least flops, the most.
  for (const Run& run : runs) {
    if (run.tokens || !run.flops) continue;
    auto& [least, most] = by_size.try_emplace(run.params, &run, &run).first->second;
    if (*run.flops < *least->flops) least = &run;
    if (*run.flops > *most->flops) most = &run;
  }
  for (const auto& [params, ends] : by_size) {
    const auto& [least, most] = ends;
    if (*most->flops <= kTokensSpread * *least->flops) continue;
    std::vector<size_t> lines = least->lines;
    lines.insert(lines.end(), most->lines.begin(), most->lines.end());
    throw InputError(fmt::format(
        "{} do not compare: {} params trained for {:g} and for {:g} flops; a column 'tokens' would "
        "tell which runs go together",
        lines_text(lines), number_text(params), *least->flops, *most->flops));
  }
}

std::string tokens_text(double tokens) {
  return tokens > 0 ? fmt::format("{:.3g} tokens a parameter", tokens) : "tokens not said";
}
std::string period_text(double sync_every) {
  return sync_every > 0 ? fmt::format("sync_every {:g}", sync_every) : "sync_every not said";
}
std::string method_text(const std::string& method) {
  return method.empty() ? "method not said" : "method " + method;
}

/// In what it differs from the kind that was chosen.
std::string difference(const RunKind& kind, const RunKind& chosen) {
  std::vector<std::string> parts;
  const auto add = [&](const std::string& is, const std::string& most_have) {
    parts.push_back(fmt::format("{} (most runs: {})", is, most_have));
  };
  if (kind.tokens != chosen.tokens) add(tokens_text(kind.tokens), tokens_text(chosen.tokens));
  if (kind.replicated && chosen.replicated) {
    if (kind.sync_every != chosen.sync_every) {
      add(period_text(kind.sync_every), period_text(chosen.sync_every));
    }
    if (kind.method != chosen.method) add(method_text(kind.method), method_text(chosen.method));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string kind_text(const RunKind& kind) {
  if (!kind.replicated) return fmt::format("data-parallel, {}", tokens_text(kind.tokens));
  return fmt::format("{}, {}, {}", method_text(kind.method), period_text(kind.sync_every),
                     tokens_text(kind.tokens));
}

/// The runs that are of a kind themselves; data-parallel ones that go with it do not count.
struct Census {
  std::set<double> sizes;
  size_t num_rows = 0;
  std::vector<size_t> lines;

  auto weight() const { return std::pair(sizes.size(), num_rows); }
};

RunKind dominant(const std::vector<Run>& runs, const std::vector<RunKind>& own) {
  const std::vector<RunKind> kinds = kinds_of(own);
  std::map<RunKind, Census> census;
  for (size_t i = 0; i < runs.size(); ++i) {
    Census& one = census[own[i]];
    one.sizes.insert(runs[i].params);
    one.num_rows += 1;
    one.lines.insert(one.lines.end(), runs[i].lines.begin(), runs[i].lines.end());
  }
  const auto weight = [&](const RunKind& kind) { return census[kind].weight(); };
  const RunKind& best = *std::ranges::max_element(kinds, {}, weight);
  std::vector<std::string> equal;
  size_t num_equal = 0;
  for (const RunKind& kind : kinds) {
    if (weight(kind) != weight(best)) continue;
    if (++num_equal <= kMaxNamedKinds) {
      equal.push_back(fmt::format("{} ({})", kind_text(kind), lines_text(census[kind].lines)));
    }
  }
  if (num_equal == 1) return best;
  if (num_equal > kMaxNamedKinds) {
    equal.push_back(fmt::format("{} more", num_equal - kMaxNamedKinds));
  }
  throw InputError(
      fmt::format("the runs do not compare, and of {} kinds none has more sizes than the others: "
                  "{}; leave one kind in the table",
                  num_equal, fmt::join(equal, " | ")));
}

}  // namespace

bool goes_with(const RunKind& run, const RunKind& kind) {
  return run.replicated ? run == kind : run.tokens == kind.tokens;
}

std::vector<RunKind> kinds_of(std::span<const RunKind> runs) {
  std::vector<RunKind> kinds;
  std::set<RunKind> seen;
  for (const bool replicated : {true, false}) {
    for (const RunKind& run : runs) {
      if (run.replicated != replicated || !seen.insert(run).second) continue;
      const auto has_it = [&](const RunKind& kind) { return goes_with(run, kind); };
      if (std::ranges::any_of(kinds, has_it)) continue;
      if (kinds.size() == kMaxKinds) {
        throw InputError(fmt::format("more than {} kinds of runs that do not compare", kMaxKinds));
      }
      kinds.push_back(run);
    }
  }
  return kinds;
}

Comparable comparable_runs(const std::vector<Run>& runs) {
  require_equal_flops(runs);
  const std::vector<RunKind> own = kinds_of_runs(runs);
  Comparable chosen{.kind = dominant(runs, own), .runs = {}, .left_out = {}};
  std::map<RunKind, std::vector<size_t>> other_kinds;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (goes_with(own[i], chosen.kind)) {
      chosen.runs.push_back(runs[i]);
    } else {
      std::ranges::copy(runs[i].lines, std::back_inserter(other_kinds[own[i]]));
    }
  }
  std::map<std::string, std::vector<size_t>> reasons;
  for (const auto& [kind, lines] : other_kinds) {
    std::ranges::copy(lines, std::back_inserter(reasons[difference(kind, chosen.kind)]));
  }
  for (auto& [reason, lines] : reasons) {
    std::ranges::sort(lines);
    chosen.left_out.push_back({std::move(lines), reason});
  }
  std::ranges::sort(chosen.left_out, {}, &LeftOut::lines);
  return chosen;
}

std::string left_out_text(const LeftOut& left_out) {
  return fmt::format("{} {} left out: {}", lines_text(left_out.lines),
                     left_out.lines.size() == 1 ? "is" : "are", left_out.reason);
}

}  // namespace atl::laws
