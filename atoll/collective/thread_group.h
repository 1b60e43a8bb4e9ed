#pragma once
// Members that are threads of one process: the mean is taken in shared memory. For tests and
// comparisons of methods without a network; a lost member cannot happen.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "atoll/collective/averager.h"

namespace atl::collective {

class ThreadGroup {
 public:
  explicit ThreadGroup(int num_members) : num_members_(num_members) {}
  /// The averager of member `rank`; one thread uses it. The group must outlive it.
  std::unique_ptr<Averager> member(int rank);

 private:
  class Member;
  struct Round {
    std::map<int, Contribution> contributions;  // By rank: the order of summation.
    std::vector<float> mean;
    std::map<int, Digest> digests;
    int num_done = 0;
  };
  void begin(int rank, Contribution contribution);
  Result<Commit> wait(int rank, int64_t round);

  int num_members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Round> rounds_;
};

}  // namespace atl::collective
