#include "atoll/run/holdings.h"

#include <algorithm>
#include <utility>

#include "atoll/base/hash.h"
#include "atoll/run/run_state.h"
#include "atoll/train/checkpoint.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostReplayed = 8;

/// Of a state whose fragments' digests are `held`: zeros before the first commit.
std::string digest_of(const std::vector<Digest>& held, const std::string& parameters) {
  const bool is_committed =
      std::ranges::any_of(held, [](const Digest& digest) { return digest != Digest{}; });
  if (!is_committed) return parameters;
  Sha256 hash;
  for (const Digest& digest : held) hash.update(digest);
  return hex(hash.finish());
}

/// What the rounds make of that checkpoint, by step: the last few states.
std::map<int64_t, Holding> replayed(Holding holding, const RunState& checkpoint,
                                    const std::vector<LoggedRound>& rounds) {
  std::map<int64_t, Holding> holdings;
  std::vector<Digest> held = checkpoint.held;
  for (const LoggedRound& round : rounds) {
    const auto fragment = static_cast<size_t>(round.fragment);
    if (fragment >= held.size() || held[fragment] != round.before) continue;
    held[fragment] = round.after;
    holding.rounds.push_back(round);
    holding.digest = digest_of(held, checkpoint.digest);
    // One that was on its way when the checkpoint was made may be of an earlier step.
    if (round.step > checkpoint.step) holdings[round.step] = holding;
  }
  while (holdings.size() > kMostReplayed) holdings.erase(holdings.begin());
  return holdings;
}

}  // namespace

fs::path rounds_in(const fs::path& run_folder) { return run_folder / "rounds"; }

std::map<int64_t, Holding> holdings_in(const fs::path& run_folder) {
  std::map<int64_t, Holding> holdings;
  RunState newest;
  for (const auto& [step, folder] : train::list_checkpoints(run_folder / "checkpoints")) {
    newest = read_run_state(folder);
    holdings[step] = {.checkpoint = folder, .digest = digest_of(newest.held, newest.digest)};
  }
  if (!holdings.empty()) {
    holdings.merge(replayed(holdings.rbegin()->second, newest, list_rounds(rounds_in(run_folder))));
  }
  return holdings;
}

std::vector<int64_t> put_void_away(const fs::path& run_folder, int64_t step) {
  std::vector<int64_t> steps;
  for (const auto& [other, folder] : train::list_checkpoints(run_folder / "checkpoints")) {
    if (other <= step) continue;
    fs::path away = folder;
    away += ".void";
    fs::remove_all(away);
    fs::rename(folder, away);
    steps.push_back(other);
  }
  return steps;
}

}  // namespace atl::run
