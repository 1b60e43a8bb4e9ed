#pragma once
// Members that are threads of one process: the parts of an Exchange go from hand to hand, so the
// results are those of as many processes, bit for bit. For tests and comparisons of methods without
// a network; a lost member cannot happen. The work of a round is done in wait().
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "atoll/collective/averager.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

class Exchange;

class ThreadGroup {
 public:
  explicit ThreadGroup(int num_members) : num_members_(num_members) {}
  /// The averager of member `rank`; one thread uses it. The group must outlive it. All members must
  /// wait for their rounds in the same order.
  std::unique_ptr<Averager> member(int rank);

 private:
  class Member;
  struct Round {
    std::map<int, Contribution> contributions;        // By rank: the order of summation.
    std::map<int, std::vector<swarm::Part>> inboxes;  // Parts that a member has yet to receive.
    std::map<int, Digest> digests;
    std::string failure;
    int num_done = 0;
  };
  void begin(int rank, Contribution contribution);
  Result<Commit> wait(int rank, int64_t number);
  Result<void> run(int rank, Round& round, Exchange& exchange);
  // Under the lock:
  std::unique_ptr<Exchange> open(int rank, const Round& round) const;
  Result<Commit> finish(int rank, Round& round, Exchange& exchange);

  int num_members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Round> rounds_;
};

}  // namespace atl::collective
