#include "atoll/island/holdings.h"

#include <algorithm>
#include <utility>

#include "atoll/base/hash.h"
#include "atoll/island/run_state.h"
#include "atoll/method/method.h"
#include "atoll/rounds/rounds.h"
#include "atoll/weights/checkpoint.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostReplayed = 8;

/// Of a state whose fragments' digests are `held`: zeros before the first commit.
std::string digest_of(const std::vector<Digest>& held, const std::string& parameters) {
  const bool is_committed =
      std::ranges::any_of(held, [](const Digest& digest) { return digest != Digest{}; });
  return is_committed ? hex(rounds::state_name(held)) : parameters;
}

/// What the rounds make of that checkpoint, by step: the last few states.
std::map<int64_t, Holding> replayed(Holding holding, const RunState& checkpoint, int64_t last_step,
                                    size_t num_at_end,
                                    const std::vector<run::LoggedRound>& rounds) {
  std::map<Digest, const run::LoggedRound*> behind;  // By the state that it rests on.
  for (const run::LoggedRound& round : rounds) behind[round.before] = &round;
  std::map<int64_t, Holding> holdings;
  std::vector<Digest> held = checkpoint.held;
  size_t num_last = 0;
  for (auto next = behind.find(rounds::state_name(held)); next != behind.end();
       next = behind.find(rounds::state_name(held))) {
    const run::LoggedRound& round = *next->second;
    behind.erase(next);
    if (round.fragment < 0 || static_cast<size_t>(round.fragment) >= held.size()) break;
    held[static_cast<size_t>(round.fragment)] = round.after;
    holding.rounds.push_back(round);
    if (static_cast<size_t>(round.fragment) < holding.applied.size()) {
      holding.applied[static_cast<size_t>(round.fragment)] = round.round;
    }
    holding.digest = digest_of(held, checkpoint.digest);
    // Before the last of them the run is not over.
    num_last += round.step == last_step ? 1 : 0;
    if (round.step == last_step && num_last < num_at_end) continue;
    // One that was on its way when the checkpoint was made may be of an earlier step.
    holdings[std::max(round.step, checkpoint.step)] = holding;
    if (holdings.size() > kMostReplayed) holdings.erase(holdings.begin());
  }
  return holdings;
}

}  // namespace

int64_t checkpoints_to_keep(const run::RunConfig& config) {
  const auto& train = config.train;
  const bool are_alone = config.swarm.num_replicas() == 1;
  if (are_alone || train.keep_checkpoints == 0 || train.checkpoint_every == 0) {
    return train.keep_checkpoints;
  }
  // In elastic pace one may be some rounds behind the others, who do not wait for it.
  const int64_t apart = method::max_steps_apart(config.sync) * (config.swarm.is_elastic() ? 3 : 1);
  const int64_t needed = 2 + (apart + train.checkpoint_every - 1) / train.checkpoint_every;
  return std::max(train.keep_checkpoints, needed);
}

fs::path rounds_in(const fs::path& run_folder) { return run_folder / "rounds"; }

std::map<int64_t, Holding> holdings_in(const fs::path& run_folder, int64_t last_step,
                                       size_t num_at_end) {
  std::map<int64_t, Holding> holdings;
  RunState newest;
  for (const auto& [step, folder] : weights::list_checkpoints(run_folder / "checkpoints")) {
    newest = read_run_state(folder);
    holdings[step] = {.checkpoint = folder,
                      .checkpoint_step = step,
                      .digest = digest_of(newest.held, newest.digest),
                      .applied = newest.applied,
                      .left = newest.left};
  }
  if (!holdings.empty()) {
    auto later = replayed(holdings.rbegin()->second, newest, last_step, num_at_end,
                          run::list_rounds(rounds_in(run_folder)));
    for (auto& [step, holding] : later) holdings[step] = std::move(holding);
  }
  return holdings;
}

std::vector<int64_t> put_void_away(const fs::path& run_folder, int64_t step) {
  std::vector<int64_t> steps;
  for (const auto& [other, folder] : weights::list_checkpoints(run_folder / "checkpoints")) {
    if (other <= step) continue;
    fs::path away = folder;
    away += ".void";
    fs::remove_all(away);
    fs::rename(folder, away);
    steps.push_back(other);
  }
  return steps;
}

}  // namespace atl::island
