#pragma once
// For tests of elastic pace: a run whose commits come when the test says so.
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "atoll/codec/codec.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/round_result.h"

namespace atl::sync {

/// The run as a member sees it; the test is its coordinator.
class ScriptedRun final : public collective::Averager {
 public:
  int num_members() const override { return 2; }
  void begin(collective::Contribution contribution) override {
    begun.emplace(contribution.round, std::move(contribution));
  }
  bool is_decided(int64_t round) const override { return commits_.contains(round); }
  Result<collective::Commit> wait(int64_t round) override {
    if (!commits_.contains(round)) throw std::logic_error("a member of elastic pace waits");
    return std::move(commits_.extract(round).mapped());
  }
  std::optional<collective::Commit> take_missed() override {
    if (missed_.empty()) return std::nullopt;
    auto commit = std::move(missed_.front());
    missed_.pop_front();
    return commit;
  }
  std::optional<collective::DueRound> take_due() override { return std::exchange(due, {}); }
  void serve_state(collective::StateProvider provider) override { state_of = std::move(provider); }
  collective::ExchangeStats stats() const override { return {}; }

  /// The round's mean is `mean` in all its values; this member had a part in it, or was left out.
  /// The others decode `own_share` of each of its values.
  void commit(int64_t round, int64_t step, float mean, bool left_out = false, float own_share = 1) {
    const auto& contribution = begun.at(round);
    const std::vector<float> values(contribution.values.size(), mean);
    std::vector<float> own(contribution.values.begin(), contribution.values.end());
    for (float& value : own) value *= own_share;
    commits_[round] = {.round = round,
                       .fragment = contribution.fragment,
                       .step = step,
                       .digest = contribution.prepare(values, own),
                       .left_out = left_out};
  }
  /// The same without this member, of `size` values. It begun it, or has not heard of it.
  void commit_without(int64_t round, int64_t step, float mean, const Digest& digest, size_t size,
                      int32_t fragment = 0) {
    collective::Commit commit{
        .round = round, .fragment = fragment, .step = step, .digest = digest, .included = false};
    commit.record = record(round, step, mean, digest, size);
    commit.missed = true;
    if (begun.contains(round)) {
      commits_[round] = std::move(commit);
    } else {
      missed_.push_back(std::move(commit));
    }
  }

  std::optional<collective::DueRound> due;
  std::map<int64_t, collective::Contribution> begun;
  collective::StateProvider state_of;

 private:
  static std::shared_ptr<const collective::CommittedRound> record(int64_t round, int64_t step,
                                                                  float mean, const Digest& digest,
                                                                  size_t size) {
    auto out = std::make_shared<collective::CommittedRound>();
    *out = {.round = round,
            .step = step,
            .digest = digest,
            .count = size,
            .segment_values = size,
            .members = {1},
            .weights = {1}};
    const auto bytes = std::make_shared<Bytes>();
    codec::make_codec("fp32")->encode(std::vector<float>(size, mean), *bytes,
                                      static_cast<uint32_t>(round));
    out->result.segments.push_back({{collective::kMeanKey, {bytes, *bytes}}});
    return out;
  }

  std::map<int64_t, collective::Commit> commits_;
  std::deque<collective::Commit> missed_;
};

}  // namespace atl::sync
