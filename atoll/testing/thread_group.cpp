#include "atoll/testing/thread_group.h"

#include <fmt/format.h>

#include "atoll/base/check.h"
#include "atoll/collective/exchange.h"
#include "atoll/swarm/rules.h"

namespace atl::collective {

class ThreadGroup::Member final : public Averager {
 public:
  Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int num_members() const override { return group_.num_members_; }
  void begin(Contribution contribution) override { group_.begin(rank_, std::move(contribution)); }
  Result<Commit> wait(int64_t round) override { return group_.wait(rank_, round); }
  ExchangeStats stats() const override { return {}; }

 private:
  ThreadGroup& group_;
  int rank_;
};

std::unique_ptr<Averager> ThreadGroup::member(int rank) {
  return std::make_unique<Member>(*this, rank);
}

void ThreadGroup::begin(int rank, Contribution contribution) {
  const std::lock_guard lock(mutex_);
  rounds_[contribution.round].contributions.emplace(rank, std::move(contribution));
  changed_.notify_all();
}

Result<Commit> ThreadGroup::wait(int rank, int64_t number) {
  std::unique_lock lock(mutex_);
  Round& round = rounds_[number];
  changed_.wait(lock, [&] { return std::ssize(round.contributions) == num_members_; });
  const Contribution& mine = round.contributions.at(rank);
  const auto exchange = open(rank, round);
  lock.unlock();
  const auto ran = run(rank, round, *exchange);
  const Digest digest = ran ? mine.prepare(exchange->mean(), exchange->own()) : Digest{};
  lock.lock();
  if (!ran) round.failure = ran.error().message;
  round.digests[rank] = digest;
  changed_.notify_all();
  changed_.wait(
      lock, [&] { return std::ssize(round.digests) == num_members_ || !round.failure.empty(); });
  return finish(rank, round, *exchange);
}

std::unique_ptr<Exchange> ThreadGroup::open(int rank, const Round& round) const {
  const Contribution& mine = round.contributions.at(rank);
  Exchange::Plan plan{.header = {.round = mine.round, .attempt = 0},
                      .rank = rank,
                      .shares = equal_shares(mine.num_values(), mine.topology, num_members_),
                      .segment_values = segment_size(mine.num_values(), mine.topology)};
  for (const auto& [other, contribution] : round.contributions) {
    ATOLL_CHECK(contribution.num_values() == mine.num_values());
    ATOLL_CHECK(exchange_name(contribution) == exchange_name(mine));
    plan.numbers.push_back(other);
    plan.members.push_back(fmt::format("thread-{}", other));
    plan.weights.push_back(contribution.weight);
  }
  return std::make_unique<Exchange>(std::move(plan), mine);
}

Result<void> ThreadGroup::run(int rank, Round& round, Exchange& exchange) {
  while (!exchange.complete()) {
    const auto worked = exchange.work();
    if (!worked) return tl::unexpected(worked.error());
    std::unique_lock lock(mutex_);
    for (const Outgoing& outgoing : exchange.take_outgoing()) {
      swarm::Part part = outgoing.part;
      part.data = *outgoing.blob;
      round.inboxes[outgoing.to].push_back(std::move(part));
      changed_.notify_all();
    }
    std::vector<swarm::Part>& inbox = round.inboxes[rank];
    if (!*worked) changed_.wait(lock, [&] { return !inbox.empty() || !round.failure.empty(); });
    if (!round.failure.empty()) return failure(round.failure);
    std::vector<swarm::Part> parts = std::exchange(inbox, {});
    lock.unlock();
    for (const swarm::Part& part : parts) {
      if (auto received = exchange.receive(part); !received) return received;
    }
  }
  return {};
}

Result<Commit> ThreadGroup::finish(int rank, Round& round, Exchange& exchange) {
  if (!round.failure.empty()) return failure(round.failure);  // The round stays: all see it.
  const Contribution& mine = round.contributions.at(rank);
  const int64_t number = mine.round;
  Commit commit{.round = number,
                .fragment = mine.fragment,
                .step = mine.step,
                .digest = round.digests.at(rank)};
  int64_t weights = 0;
  for (const auto& [other, digest] : round.digests) {
    weights += round.contributions.at(other).weight;
    commit.members.push_back(fmt::format("thread-{}", other));
    if (round.contributions.at(other).weight == 0)
      commit.abstainers.push_back(commit.members.back());
    if (digest != commit.digest) {
      round.failure = "members computed different results";
      changed_.notify_all();
      return failure(round.failure);
    }
  }
  if (weights > 0) {
    commit.own_share =
        static_cast<double>(round.contributions.at(rank).weight) / static_cast<double>(weights);
  }
  const Exchange::Plan& plan = exchange.plan();
  commit.record =
      std::make_shared<const CommittedRound>(CommittedRound{.round = number,
                                                            .fragment = mine.fragment,
                                                            .step = mine.step,
                                                            .digest = commit.digest,
                                                            .count = mine.num_values(),
                                                            .segment_values = plan.segment_values,
                                                            .members = plan.numbers,
                                                            .weights = plan.weights,
                                                            .result = exchange.take_result()});
  if (++round.num_done == num_members_) rounds_.erase(number);
  return commit;
}

}  // namespace atl::collective
