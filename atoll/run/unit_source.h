#pragma once
// Which unit of data (swarm/leases.h) each step of an island is trained on: what its diary says of
// a step that was taken before, else the next one that it is given. LibTorch-free. One owner
// thread.
#include <cstdint>
#include <functional>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/run/diary.h"
#include "atoll/run/time_spent.h"

namespace atl::run {

/// A global batch is cut into `num_members` units.
struct UnitOptions {
  int num_members = 1;
  int rank = 0;  // Of this island among them.
  /// The next unit; waits for it. Empty: this rank's of each step.
  std::function<Result<int64_t>()> next;
  Diary* diary = nullptr;  // May be null.
};

class UnitSource {
 public:
  /// `clock` and `time` outlive it.
  UnitSource(UnitOptions options, const Clock& clock, TimeSpent& time);

  /// The unit for that step, counted from 1.
  [[nodiscard]] Result<int64_t> take(int64_t step);
  /// Units that this island has trained on as the member that it is. The reference stays valid.
  const int64_t& num_trained() const { return num_trained_; }
  void set_trained(int64_t units) { num_trained_ = units; }
  int64_t last() const { return last_; }
  /// That this process has trained on.
  int64_t num_now() const { return num_now_; }

 private:
  UnitOptions options_;
  const Clock& clock_;
  TimeSpent& time_;
  int64_t num_trained_ = 0;
  int64_t last_ = 0;
  int64_t num_now_ = 0;
};

}  // namespace atl::run
