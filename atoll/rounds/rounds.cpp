#include "atoll/rounds/rounds.h"

#include <algorithm>
#include <utility>

#include "atoll/rounds/elastic.h"
#include "atoll/rounds/lockstep.h"

namespace atl::rounds {

Rounds::Rounds(Standing standing, const PaceOptions& options, const method::SyncOptions& sync,
               collective::Decisions& decisions)
    : standing_(std::move(standing)), pace_(make_pace(options, sync, standing_, decisions)) {}

void Rounds::trained(int64_t step) {
  standing_.trained();
  step_ = step;
}

bool Rounds::counts(int64_t round) {
  const bool abstains = std::exchange(abstains_, false);
  const bool did = std::erase(abstains_again_, round) > 0;
  return !abstains && !did;
}

/// Who has learned nothing since has nothing to abstain with.
void Rounds::begun(OwnRound own) {
  own.has_abstained = own.has_abstained && own.num_steps > 0;
  standing_.begun(own);
}

Taken Rounds::taken(const collective::Commit& commit) {
  const OwnRound own = standing_.decided(commit.round);
  if (commit.included) standing_.included(own);
  const Fate fate = !commit.included    ? Fate::kLate
                    : own.has_abstained ? Fate::kAbstained
                    : commit.left_out   ? Fate::kLeftOut
                                        : Fate::kCounted;
  return {.own = own, .fate = pace_->taken(commit, fate), .before = note(commit)};
}

bool Rounds::is_missing(const collective::Commit& commit) const {
  return commit.fragment < standing_.num_fragments() &&
         !standing_.is_applied(commit.fragment, commit.round);
}

Digest Rounds::absorbed(const collective::Commit& commit) {
  pace_->taken(commit, Fate::kLate);
  return note(commit);
}

void Rounds::passed(const collective::Commit& commit) {
  if (commit.stop) standing_.note_stop();
}

Digest Rounds::note(const collective::Commit& commit) {
  passed(commit);
  if (standing_.held().empty()) return {};
  const Digest before = state_name(standing_.held());
  standing_.hold(commit.fragment, commit.digest);
  return before;
}

std::vector<int64_t> Rounds::abstained() const {
  std::vector<int64_t> rounds;
  for (const auto& [round, own] : standing_.open()) {
    if (own.has_abstained) rounds.push_back(round);
  }
  return rounds;
}

/// Members that can be given no state can only be level together.
void Rounds::leave_soon() {
  if (!standing_.held().empty()) standing_.leave_soon();
}

/// A round that it has begun it must still take: others may count on it to hold that.
bool Rounds::may_leave(int64_t step, bool lands) const {
  if (standing_.held().empty()) return pace_->syncs_after(step, lands);
  return standing_.has_counted() && standing_.open().empty();
}

void Rounds::restore(std::vector<Digest> held, std::vector<int64_t> applied) {
  // A checkpoint that does not say it is of before the first commit, or of another program.
  if (held.size() != standing_.held().size()) held = standing_.held();
  if (applied.size() != standing_.applied().size()) applied = standing_.applied();
  standing_.restore(std::move(held), std::move(applied));
}

std::vector<OwnRound> Rounds::resumed(int64_t step) {
  step_ = step;
  standing_.forget_steps();
  return pace_->resumed(step);
}

bool Rounds::follows(int64_t fragment, const Digest& before) const {
  return fragment < std::ssize(standing_.held()) && state_name(standing_.held()) == before;
}

void Rounds::resumed_at_commit(int64_t step) {
  resumed(step);
  standing_.forget_steps();
}

void Rounds::joined(int64_t step, int64_t last_round) {
  step_ = step;
  standing_.forget_steps();
  pace_->joined(step, last_round);
}

std::unique_ptr<Pace> make_pace(const PaceOptions& options, const method::SyncOptions& sync,
                                Standing& standing, collective::Decisions& decisions) {
  if (options.name == "elastic") {
    return std::make_unique<Elastic>(options, sync, standing, decisions);
  }
  return std::make_unique<Lockstep>(options, sync, standing, decisions);
}

Digest state_name(std::span<const Digest> held) {
  Sha256 hash;
  for (const Digest& digest : held) hash.update(digest);
  return hash.finish();
}

}  // namespace atl::rounds
