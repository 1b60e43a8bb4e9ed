#include "atoll/run/result_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "atoll/base/progress.h"

namespace atl::run {

Summary combine(const std::vector<Summary>& islands, const std::filesystem::path& folder) {
  Summary out = islands.front();
  out.run = folder.string();
  // Who came in the middle did not see the beginning, which is the same for all.
  const auto saw_it = [](const Summary& island) { return std::isfinite(island.val_loss_start); };
  const auto first = std::ranges::find_if(islands, saw_it);
  if (first != islands.end()) out.val_loss_start = first->val_loss_start;
  for (size_t i = 1; i < islands.size(); ++i) {
    out.train_loss += islands[i].train_loss;
    out.val_loss_island += islands[i].val_loss_island;
    out.tokens_per_s += islands[i].tokens_per_s;
    out.bytes_sent += islands[i].bytes_sent;
    out.bytes_received += islands[i].bytes_received;
    out.abstained_rounds += islands[i].abstained_rounds;
    out.stall_share += islands[i].stall_share;
    out.blocked_share += islands[i].blocked_share;
    out.checkpoint_stall_ms = std::max(out.checkpoint_stall_ms, islands[i].checkpoint_stall_ms);
    out.steps_now += islands[i].steps_now;
    out.seconds += islands[i].seconds;
    out.away_seconds += islands[i].away_seconds;
  }
  const auto count = static_cast<double>(islands.size());
  out.train_loss /= count;
  out.val_loss_island /= count;
  out.stall_share /= count;
  out.blocked_share /= count;
  out.steps_now /= std::ssize(islands);  // In whole batches: one may have taken another's share.
  return out;
}

namespace {

/// Its folder is called so.
std::string name_of(const Summary& island) {
  return std::filesystem::path(island.run).filename().string();
}

/// A line for each island and one for all.
std::string rows(const std::vector<Summary>& islands, const Summary& all) {
  const bool any_away = all.away_seconds > 0;
  std::string out = fmt::format("{:<12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}{}\n", "",
                                "val start", "val end", "tokens/s", "sent", "received", "waiting",
                                any_away ? fmt::format(" {:>8}", "away") : "");
  const auto text_of = [](std::optional<double> loss) {
    return loss && !std::isnan(*loss) ? fmt::format("{:.3f}", *loss) : "-";
  };
  const auto add = [&](const std::string& name, const Summary& s, std::optional<double> val) {
    out += fmt::format(
        "{:<12} {:>10} {:>10} {:>10.0f} {:>10} {:>10} {:>7.1f}%", name, text_of(s.val_loss_start),
        text_of(val), s.tokens_per_s, format_bytes(static_cast<double>(s.bytes_sent)),
        format_bytes(static_cast<double>(s.bytes_received)), 100 * s.seconds.waiting_share());
    if (any_away) {
      out += s.away_seconds > 0 ? fmt::format(" {:>6.1f} s", s.away_seconds) : "        -";
    }
    out += "\n";
  };
  for (const Summary& island : islands) {
    // A run that was stopped has no loss of its islands' own before the last sync.
    add(name_of(island), island,
        island.stopped ? std::nullopt : std::optional(island.val_loss_island));
  }
  add("global", all, all.val_loss);
  return out;
}

std::string method_line(const RunConfig& config, const Summary& all) {
  return fmt::format("Method: {}, codec {}{}{}.\n", all.method, all.codec,
                     all.fragment_sync_delay > 0
                         ? fmt::format(", fragment_sync_delay {}", all.fragment_sync_delay)
                         : "",
                     config.sync.codec == "auto" ? " (sync.codec = auto chose)" : "");
}

std::string wire_line(const Summary& all, size_t num_islands) {
  const bool exact = all.codec == "fp32";
  const double value_bytes = exact ? 4 : 2;
  // Reduce-scatter and all-gather: each island sends 2 (M-1)/M of the values at every step.
  const double data_parallel = 2 * static_cast<double>(num_islands - 1) * value_bytes *
                               static_cast<double>(all.num_parameters) *
                               static_cast<double>(all.steps_now);
  const auto sent = static_cast<double>(all.bytes_sent);
  return fmt::format(
      "On the wire: {} sent in all; data-parallel in {} would have needed {} "
      "({:.1f} times as much).\n",
      format_bytes(sent), exact ? "fp32" : "bf16", format_bytes(data_parallel),
      data_parallel / std::max(1.0, sent));
}

}  // namespace

std::string result_table(const RunConfig& config, const std::vector<Summary>& islands) {
  const Summary all = combine(islands, islands.front().run);
  std::string out = rows(islands, all) + "\n";
  const auto trained = [](const Summary& island) { return island.steps_now > 0; };
  if (std::ranges::none_of(islands, trained)) {
    return out + fmt::format(
                     "The run was complete already, {} steps. All islands hold the same global "
                     "model: {}\n",
                     all.steps, all.digest);
  }
  out += method_line(config, all);
  for (const Summary& island : islands) {
    if (island.abstained_rounds == 0) continue;
    out += fmt::format("{} abstained from {} rounds, with weight 0; why is in {}\n",
                       name_of(island), island.abstained_rounds,
                       (std::filesystem::path(island.run) / "log.txt").string());
  }
  out += wire_line(all, islands.size());
  out += fmt::format("All islands hold the same global model: {}\n", all.digest);
  return out;
}

}  // namespace atl::run
