#include "atoll/collective/thread_group.h"

#include <string>
#include <utility>

#include "atoll/base/check.h"

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
  Round& round = rounds_[contribution.round];
  round.contributions.emplace(rank, std::move(contribution));
  if (std::ssize(round.contributions) < num_members_) return;
  int64_t weights = 0;
  for (const auto& [_, member] : round.contributions) weights += member.weight;
  round.mean.assign(round.contributions.begin()->second.values.size(), 0.0F);
  for (const auto& [_, member] : round.contributions) {
    const auto share =
        static_cast<float>(static_cast<double>(member.weight) / static_cast<double>(weights));
    ATOLL_CHECK(member.values.size() == round.mean.size());
    for (size_t i = 0; i < round.mean.size(); ++i) round.mean[i] += share * member.values[i];
  }
  changed_.notify_all();
}

Result<Commit> ThreadGroup::wait(int rank, int64_t number) {
  std::unique_lock lock(mutex_);
  Round& round = rounds_[number];
  changed_.wait(lock, [&] { return std::ssize(round.contributions) == num_members_; });
  Contribution& mine = round.contributions.at(rank);
  lock.unlock();
  const Digest digest = mine.prepare(round.mean);
  lock.lock();
  round.digests[rank] = digest;
  changed_.notify_all();
  changed_.wait(lock, [&] { return std::ssize(round.digests) == num_members_; });
  Commit commit{.round = number, .digest = digest};
  for (const auto& [other, other_digest] : round.digests) {
    commit.members.push_back("thread-" + std::to_string(other));
    if (other_digest != digest) return failure("members computed different results");
  }
  if (++round.num_done == num_members_) rounds_.erase(number);
  return commit;
}

}  // namespace atl::collective
