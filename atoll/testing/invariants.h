#pragma once
// For tests: what must hold for a simulated run as a whole, whatever happens to its processes. The
// islands and the coordinator's disk report as they go; what every state must be is computed here
// by the protocol's definition, on its own, and the first thing that is wrong is kept.
//
// An epoch begins with each RunBegan: commits of the one before it are void.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/collective/exchange.h"
#include "atoll/coordinator/book.h"
#include "atoll/testing/mean_definition.h"
#include "atoll/testing/outlier_definition.h"

namespace atl::collective {

/// Mistakes that a simulated process can be told to make: each must be found by an invariant.
enum class Bug : uint8_t {
  kNone,
  kAppliesBeforeCommit,  // An island takes what it has prepared for committed.
  kForgetsCommits,       // A coordinator's disk drops commits that it said were durable.
  kForgesDigest,         // An island's state is not what it says.
  kServesOldState,       // A donor gives away an older state; who joins does not look.
  kTrainsTwice,          // An island takes the same leased rows again now and then.
  kTermFallsBack,        // A coordinator that has lost its disk counts its terms from 1.
  kSwapsResidualEarly,   // An island takes the new residual although its part did not count.
  kSitsStill,            // An island that has come back takes part no more.
  kCountsOutliers,       // A coordinator leaves nobody out.
};

/// One fragment's values, and the round after which they are so.
using Theta = std::vector<float>;

inline Digest digest_of(const Theta& theta) { return tree_digest(std::as_bytes(std::span(theta))); }

class Invariants {
 public:
  struct Contributed {
    Theta values;
    Theta residual;  // Empty without.
    int64_t weight = 0;
    int64_t num_trained = 0;
  };
  using Epoch = int64_t;

  Invariants(const codec::Codec& codec, Topology topology, size_t count)
      : codec_(codec), topology_(topology), count_(count) {}

  /// The first thing that was wrong.
  const std::optional<std::string>& broken() const { return broken_; }
  void violated(const std::string& invariant, const std::string& what) {
    if (!broken_) broken_ = invariant + ": " + what;
  }

  // The coordinator's side: what its disk has kept for good, before anybody hears of it.

  void persisted(const swarm::Record& record) {
    std::visit([&](const auto& kind) { take(kind); }, record);
  }

  /// Whether the coordinator has the reports of all attempts, and each is of all members: from the
  /// beginning, until something goes wrong.
  void judge_outliers(bool judges) { judges_ = judges; }
  /// Elastic pace: each commit is of a later step than the one before.
  void expect_rising_steps(bool rises) { steps_rise_ = rises; }

  /// What is known of consumed rows is gone with it: the next run begins behind its start step's.
  void lost_disk() { lost_disk_ = true; }

  // An island's side.

  Epoch epoch_of(uint64_t term, int32_t number) const {
    const auto found = admitted_.upper_bound({number, term});
    return found == admitted_.begin() ? -1 : std::prev(found)->second;
  }
  /// An island heard a coordinator of that term.
  void heard(const std::string& name, uint64_t last, uint64_t term) {
    if (term < last)
      violated("terms", fmt::format("'{}' went from term {} to {}", name, last, term));
  }
  /// An island begins with the values of a checkpoint.
  void started(Epoch epoch, int32_t fragment, const Theta& theta) {
    const auto [found, first] = truth_.try_emplace({epoch, fragment}, State{-1, theta});
    if (first) started_[{epoch, fragment}] = theta;
    if (started_[{epoch, fragment}] != theta) {
      violated("digests", fmt::format("epoch {}: islands start from different values", epoch));
    }
  }
  void trained(Epoch epoch, int32_t number, int64_t unit) {
    trained_[{epoch, number}].push_back(unit);
  }
  void begun(Epoch epoch, int64_t round, int32_t number, Contributed contributed) {
    contributed_[{epoch, round}][number] = std::move(contributed);
  }
  void applied(Epoch epoch, int64_t round, const Theta& theta, const std::string& name) {
    const auto found = commits_.find({epoch, round});
    if (found == commits_.end()) {
      return violated("durable", fmt::format("'{}' applied round {} of epoch {}, which no journal "
                                             "has as committed",
                                             name, round, epoch));
    }
    if (digest_of(theta) != found->second.held.digest) {
      violated("digests",
               fmt::format("'{}' holds another state than was committed in round {}", name, round));
    }
  }
  /// The residual that an island keeps once a round is decided.
  void kept_residual(Epoch epoch, int64_t round, int32_t number, bool included,
                     const Theta& residual) {
    const auto contributions = contributed_.find({epoch, round});
    const auto commit = commits_.find({epoch, round});
    if (contributions == contributed_.end() || commit == commits_.end()) return;
    const auto own = contributions->second.find(number);
    if (own == contributions->second.end()) return;
    const auto& members = commit->second.members;
    const auto found = std::ranges::find(members, number);
    if (included != (found != members.end())) {
      violated("residuals",
               fmt::format("round {}: member {} is wrong about being in it", round, number));
    }
    const Theta* expected = &own->second.residual;
    const DefinedRound& defined = defined_[{epoch, round}];
    if (found != members.end() && !defined.new_residuals.empty()) {
      expected = &defined.new_residuals[static_cast<size_t>(found - members.begin())];
    }
    if (*expected != residual) {
      violated("residuals", fmt::format("round {}: member {} keeps another residual than what was "
                                        "added minus what was sent",
                                        round, number));
    }
  }
  /// The round after which the newest committed state of a fragment is; -1: none.
  int64_t newest(Epoch epoch, int32_t fragment) const {
    const auto found = truth_.find({epoch, fragment});
    return found == truth_.end() ? -1 : found->second.round;
  }
  void fetched(Epoch epoch, int32_t fragment, int64_t round, const Theta& theta, int64_t least) {
    const auto commit = commits_.find({epoch, round});
    if (round < least) {
      violated("donors", fmt::format("fragment {} was fetched as of round {}, where {} was known",
                                     fragment, round, least));
    } else if (commit == commits_.end() || commit->second.held.digest != digest_of(theta)) {
      violated("donors", fmt::format("fragment {} was fetched as of round {}, and is not that",
                                     fragment, round));
    }
  }

  const std::vector<int64_t>& trained_by(Epoch epoch, int32_t number) {
    return trained_[{epoch, number}];
  }
  size_t num_commits() const { return commits_.size(); }
  const std::map<std::pair<Epoch, int64_t>, swarm::Committed>& commits() const { return commits_; }
  Epoch epoch() const { return epoch_; }

 private:
  struct State {
    int64_t round = -1;
    Theta theta;
  };

  void take(const swarm::TermBegan& record) {
    if (record.term <= term_) {
      violated("terms", fmt::format("term {} after term {}", record.term, term_));
    }
    term_ = std::max(term_, record.term);
  }
  void take(const swarm::RunBegan& record) {
    epoch_ += 1;
    outliers_.past.clear();
    last_step_ = record.start_step;
    const int64_t first = record.start_step * record.num_replicas;
    if (std::exchange(lost_disk_, false) || first < first_unit_) {  // Before what is known.
      consumed_.clear();
      first_unit_ = first;
    }
    // Later commits are void.
    std::erase_if(consumed_, [&](const auto& entry) { return entry.second > record.start_step; });
  }
  void take(const swarm::Admitted& record) { admitted_[{record.peer.number, term_}] = epoch_; }
  void take(const swarm::Removed& /*record*/) {}
  void take(const swarm::Left& /*record*/) {}
  void take(const swarm::Granted& /*record*/) {}

  void take(const swarm::Committed& record) {
    const int64_t round = record.held.round;
    const auto [found, first] = commits_.try_emplace({epoch_, round}, record);
    if (!first && !(found->second == record)) {
      return violated("commits",
                      fmt::format("round {} of epoch {} was committed twice", round, epoch_));
    }
    const int64_t before = std::exchange(last_step_, record.held.step);
    if (steps_rise_ && first && record.held.step <= before) {
      violated("commits",
               fmt::format("round {} of epoch {} was committed at step {}, after step {}", round,
                           epoch_, record.held.step, before));
    }
    consume(record);
    define(record);
  }

  void consume(const swarm::Committed& record) {
    for (size_t rank = 0; rank < record.members.size(); ++rank) {
      if (record.weights[rank] == 0) continue;
      const std::pair key(epoch_, record.members[rank]);
      const auto& units = trained_[key];
      const auto until = record.num_trained[rank];
      if (std::cmp_greater(until, units.size())) {
        violated("rows", fmt::format("member {} has not trained on {} units", key.second, until));
        return;
      }
      int64_t& counted = counted_[key];
      for (; counted < until; ++counted) {
        const int64_t unit = units[static_cast<size_t>(counted)];
        if (unit < first_unit_ || !consumed_.emplace(unit, record.held.step).second) {
          violated("rows", fmt::format("unit {} is consumed again, by member {} in round {}", unit,
                                       key.second, record.held.round));
        }
      }
    }
  }

  /// The state after the round, from what its members have begun with.
  void define(const swarm::Committed& record) {
    const int64_t round = record.held.round;
    State& state = truth_[{epoch_, record.held.fragment}];
    if (state.round >= round) {
      return violated("commits", fmt::format("round {} after round {}", round, state.round));
    }
    RoundInputs in{.codec = &codec_,
                   .topology = topology_,
                   .sequence = static_cast<uint32_t>(round),
                   .weights = record.weights,
                   .shares = equal_shares(count_, topology_, std::ssize(record.members)),
                   .segment_values = segment_size(count_, topology_)};
    const auto& contributions = contributed_[{epoch_, round}];
    for (size_t rank = 0; rank < record.members.size(); ++rank) {
      const auto found = contributions.find(record.members[rank]);
      const bool is_left_out = record.weights[rank] == 0;
      if (found == contributions.end() ||
          (found->second.weight != record.weights[rank] && !is_left_out)) {
        return violated("commits", fmt::format("round {} has what member {} did not begin", round,
                                               record.members[rank]));
      }
      in.values.push_back(found->second.values);
      if (!found->second.residual.empty()) in.residuals.push_back(found->second.residual);
    }
    DefinedRound defined = define_round(in);
    state.round = round;
    state.theta.resize(count_);
    for (size_t i = 0; i < count_; ++i) state.theta[i] += defined.mean[i];
    if (digest_of(state.theta) != record.held.digest) {
      violated(
          "digests",
          fmt::format("round {} was committed with another result than its members make", round));
    }
    if (!std::ranges::all_of(state.theta, [](float value) { return std::isfinite(value); })) {
      violated("outliers", fmt::format("round {} made what is no number", round));
    }
    judge(record, std::move(in));
    defined.mean.clear();
    defined.own.clear();
    defined_[{epoch_, round}] = std::move(defined);
  }

  /// Whether those count that are to, and no others.
  void judge(const swarm::Committed& record, RoundInputs in) {
    if (!judges_) return;
    const auto& contributions = contributed_[{epoch_, record.held.round}];
    swarm::OutlierDefinition::Round round{.fragment = record.held.fragment};
    for (size_t rank = 0; rank < record.members.size(); ++rank) {
      in.weights[rank] = contributions.at(record.members[rank]).weight;
    }
    DefinedRound all = define_round(in);
    std::vector<Theta> vectors;
    for (size_t rank = 0; rank < record.members.size(); ++rank) {
      if (in.weights[rank] == 0) continue;
      const int32_t number = record.members[rank];
      double sum = 0;
      for (const float value : all.own[rank]) sum += static_cast<double>(value) * value;
      round.all.push_back({number, std::sqrt(sum), in.weights[rank]});
      vectors.push_back(std::move(all.own[rank]));
      if (record.weights[rank] == 0) round.left_out.insert(number);
    }
    if (round.left_out != outliers_.judge_all_attempts(round.fragment, round.all, vectors)) {
      violated("outliers",
               fmt::format("round {} has not left out who was to be", record.held.round));
    }
    outliers_.past.push_back(std::move(round));
  }

  const codec::Codec& codec_;
  const Topology topology_;
  const size_t count_;
  std::optional<std::string> broken_;
  uint64_t term_ = 0;
  Epoch epoch_ = -1;
  int64_t last_step_ = 0;  // Of the newest commit.
  int64_t first_unit_ = 0;
  std::map<std::pair<int32_t, uint64_t>, Epoch> admitted_;
  std::map<std::pair<Epoch, int64_t>, swarm::Committed> commits_;
  std::map<std::pair<Epoch, int64_t>, std::map<int32_t, Contributed>> contributed_;
  std::map<std::pair<Epoch, int64_t>, DefinedRound> defined_;
  std::map<std::pair<Epoch, int32_t>, State> truth_;
  std::map<std::pair<Epoch, int32_t>, Theta> started_;
  std::map<std::pair<Epoch, int32_t>, std::vector<int64_t>> trained_;  // By each member.
  std::map<std::pair<Epoch, int32_t>, int64_t> counted_;               // The first so many of them.
  std::map<int64_t, int64_t> consumed_;  // Unit -> step of the commit.
  bool lost_disk_ = false;
  swarm::OutlierDefinition outliers_;
  bool judges_ = false;
  bool steps_rise_ = false;
};

}  // namespace atl::collective
