#include "atoll/rounds/rounds.h"

#include <algorithm>
#include <utility>

#include "atoll/rounds/elastic.h"
#include "atoll/rounds/lockstep.h"

namespace atl::rounds {

Rounds::Rounds(Standing standing, std::unique_ptr<Pace> pace, collective::Decisions& decisions)
    : standing_(std::move(standing)), pace_(std::move(pace)), decisions_(decisions) {}

void Rounds::trained(int64_t step) {
  standing_.trained();
  step_ = step;
}

Result<std::optional<Task>> Rounds::next() {
  auto task = pace_->next(standing_, step_, decisions_);
  const bool begins = task && *task && std::holds_alternative<Begin>(**task);
  if (begins && pace_->absorbs_first() && has_missed()) return std::nullopt;
  return task;
}

bool Rounds::has_missed() {
  if (!missed_) missed_ = decisions_.take_missed();
  return missed_.has_value();
}

std::optional<Task> Rounds::next_missed() {
  rests_ = is_catching_up_ && pace_->rests();
  if (rests_ || pace_->is_over(standing_) || !has_missed()) return std::nullopt;
  is_catching_up_ = true;
  if (const auto own = pace_->settled_before(*missed_, standing_)) return Take{*own};
  return Absorb{*std::exchange(missed_, std::nullopt)};
}

CaughtUp Rounds::caught_up(int64_t step) {
  CaughtUp out{.step = pace_->step_behind(step, newest_step_), .rests = rests_};
  is_catching_up_ = false;
  out.step = pace_->step_caught_up(out.step, standing_, decisions_);
  out.left_to_others = pace_->left_to_others(step, out.step);
  return out;
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
  const int64_t fragment = own.fragment;
  if (commit.included) standing_.included(own);
  Taken out{.fate = !commit.included    ? Fate::kLate
                    : own.has_abstained ? Fate::kAbstained
                    : commit.left_out   ? Fate::kLeftOut
                                        : pace_->counted(),
            .before = note(commit)};
  const bool unlearns = out.fate == Fate::kAbstained || out.fate == Fate::kLeftOut;
  if (unlearns && pace_->unlearns_all()) standing_.set_steps_since(fragment, 0);
  return out;
}

bool Rounds::is_missing(const collective::Commit& commit) const {
  return commit.fragment < standing_.num_fragments() &&
         !standing_.is_applied(commit.fragment, commit.round);
}

Digest Rounds::absorbed(const collective::Commit& commit) {
  newest_step_ = commit.step;
  return note(commit);
}

void Rounds::passed(const collective::Commit& commit) {
  newest_step_ = commit.step;
  if (commit.stop) standing_.note_stop();
}

/// A row counts with the first commit of any fragment that has it.
Digest Rounds::note(const collective::Commit& commit) {
  if (commit.stop) standing_.note_stop();
  pace_->committed(commit.step, standing_.steps_in_none());
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

void Rounds::restore(std::vector<Digest> held, std::vector<int64_t> applied) {
  // A checkpoint that does not say it is of before the first commit, or of another program.
  if (held.size() != standing_.held().size()) held = standing_.held();
  if (applied.size() != standing_.applied().size() || pace_->numbers_anew()) {
    applied = standing_.applied();
  }
  standing_.restore(std::move(held), std::move(applied));
}

std::vector<OwnRound> Rounds::resumed(int64_t step) {
  step_ = step;
  pace_->start(step, -1);
  for (int64_t fragment = 0; fragment < standing_.num_fragments(); ++fragment) {
    standing_.set_steps_since(fragment, pace_->steps_since(fragment, step));
  }
  const std::vector<OwnRound> rounds = pace_->on_their_way(step);
  for (const OwnRound& own : rounds) {
    standing_.set_steps_since(own.fragment, standing_.steps_since(own.fragment) + own.num_steps);
  }
  return rounds;
}

bool Rounds::follows(int64_t fragment, const Digest& before) const {
  return fragment < std::ssize(standing_.held()) && state_name(standing_.held()) == before;
}

void Rounds::resumed_at_commit(int64_t step) {
  if (pace_->numbers_anew()) {
    standing_.restore(standing_.held(), std::vector(standing_.applied().size(), int64_t{-1}));
  }
  joined(step, -1);
}

void Rounds::joined(int64_t step, int64_t last_round) {
  step_ = step;
  pace_->start(step, last_round);
  for (int64_t fragment = 0; fragment < standing_.num_fragments(); ++fragment) {
    standing_.set_steps_since(fragment, 0);
  }
}

std::unique_ptr<Pace> make_pace(const PaceOptions& options, const method::SyncOptions& sync) {
  if (options.name == "elastic") return std::make_unique<Elastic>(options, sync);
  return std::make_unique<Lockstep>(options, sync);
}

Digest state_name(std::span<const Digest> held) {
  Sha256 hash;
  for (const Digest& digest : held) hash.update(digest);
  return hash.finish();
}

}  // namespace atl::rounds
