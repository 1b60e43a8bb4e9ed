#pragma once
// Who of an island's processes is still there. Each gives a sign of life once a second; process 0
// looks at all, the others at process 0, which tells them whom it misses. A process that ends by
// itself says why. A thread of its own, so that it goes on whatever training does.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/group/answer_timer.h"
#include "atoll/group/meeting.h"
#include "atoll/run/process_place.h"

namespace atl::group {

/// Why the processes of an island cannot go on.
struct Verdict {
  std::string text;
  bool is_lost = false;  // One is gone, without a word; else it said why it ended.
};

class Watch {
 public:
  /// `store` is its own connection. Who gives no sign for `limit` is lost. The others have written
  /// their keys here already (announce()). Each finished look is an answer to `timer`, which
  /// outlives it.
  Watch(Store store, const run::ProcessPlace& place, Duration limit, const Clock& clock,
        AnswerTimer& timer);
  /// Ends the thread; the others are not told.
  ~Watch();

  /// What this process says of itself first: that it is there, and where.
  static void announce(c10d::Store& store, const run::ProcessPlace& place);

  /// Nothing while all are there.
  std::optional<Verdict> verdict() const;
  /// The same after something went wrong here: looks more closely, and waits for it.
  Verdict explain(const std::string& what_went_wrong);
  /// This process ends because of `reason`: the others shall know before it is gone. Process 0
  /// waits a moment until they do, for then its store goes too.
  void leave(const std::string& reason);
  /// Process 0, after a verdict: the same.
  void let_others_hear();

 private:
  struct Seen {
    std::string sign;
    Time since;
    int64_t num_looks = 0;  // Since then: where this process itself hardly runs, they are few.
    std::string host;
  };

  void run();
  /// Process 0 has written why all end: waits a moment until so many have read it.
  void wait_for_readers(int64_t count);
  void look();
  void look_at(int64_t rank);
  void decide(Verdict verdict);
  void write_verdict(const Verdict& verdict);
  std::string name_of(int64_t rank) const;

  const Store store_;
  const run::ProcessPlace place_;
  const Duration limit_;
  const Clock& clock_;
  AnswerTimer& timer_;
  std::map<int64_t, Seen> seen_;  // The thread's own.
  int64_t num_signs_ = 0;
  mutable Mutex mutex_;
  Condition changed_;
  std::optional<Verdict> verdict_ ATOLL_GUARDED_BY(mutex_);
  std::optional<std::string> last_words_ ATOLL_GUARDED_BY(mutex_);
  bool has_left_ ATOLL_GUARDED_BY(mutex_) = false;
  bool is_suspicious_ ATOLL_GUARDED_BY(mutex_) = false;
  bool ends_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::group
