#pragma once
// What the engine has said so far, for the threads that wait for it: the run's welcome and start,
// rounds that were committed, due or missed, rows, states, and the end. The session's thread
// writes, the island's threads take, each thing once. Thread-safe.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/base/result.h"
#include "atoll/collective/mailbox.h"
#include "atoll/collective/session.h"
#include "atoll/swarm/ending.h"
#include "atoll/swarm/leases.h"

namespace atl::collective {

class SessionBoard {
 public:
  /// `cancelled`: the user wants no more; asked before the run begins.
  explicit SessionBoard(std::function<bool()> cancelled) : cancelled_(std::move(cancelled)) {}

  // Written (collective/engine.h).

  void welcomed(const std::string& run, const std::string& config);
  void started(const StartInfo& info);
  void committed(const Commit& commit, bool begun);
  void leased(const std::vector<swarm::Units>& units);
  void called(const DueRound& due);
  void reinstated(int64_t step);
  void fetched(int32_t fragment, Result<FetchedState> state);
  void left();
  void failed(const std::string& reason, swarm::Ending ending);

  // Waited for. What has come counts; else a wait fails once the run has failed.

  [[nodiscard]] Result<void> wait_for_welcome();
  [[nodiscard]] Result<void> wait_for_start();
  [[nodiscard]] Result<void> wait_until_left();
  [[nodiscard]] Result<Commit> take_commit(int64_t round);
  [[nodiscard]] Result<FetchedState> take_state(int32_t fragment);
  [[nodiscard]] Result<int64_t> next_unit();

  // Taken if it is there.

  std::optional<Commit> take_missed();
  std::optional<DueRound> take_due();
  std::optional<int64_t> take_position();
  /// From here on the round's commit is for take_commit().
  void note_begun(int64_t round);
  bool is_committed(int64_t round) const;
  /// Or will never be.
  bool is_decided(int64_t round) const;
  swarm::Ending ending() const;

  // After wait_for_welcome(), and wait_for_start().

  const std::string& run() const { return run_; }
  const std::string& config() const { return config_; }
  const std::optional<StartInfo>& start() const { return start_; }

 private:
  template <typename Change>
  void publish(Change change);
  template <typename Done>
  Result<void> wait_until(Done done);
  template <typename Done>
  Result<void> wait_before_start(Done done, const char* what);

  const std::function<bool()> cancelled_;
  mutable Mutex mutex_;
  Condition changed_;
  // Written once, with mutex_ held, before the caller may read them.
  std::string run_;
  std::string config_;
  std::optional<StartInfo> start_;
  bool is_welcome_ ATOLL_GUARDED_BY(mutex_) = false;
  bool has_left_ ATOLL_GUARDED_BY(mutex_) = false;
  Mailbox mailbox_ ATOLL_GUARDED_BY(mutex_);
  std::map<int32_t, Result<FetchedState>> fetched_ ATOLL_GUARDED_BY(mutex_);
  swarm::Ending ending_ ATOLL_GUARDED_BY(mutex_) = swarm::Ending::kFailure;
  std::optional<Failure> failure_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::collective
