#pragma once
// The rounds that were committed since the newest checkpoints, on disk: a checkpoint and the rounds
// after it are the state of the last commit. One file a round, in a run directory's rounds/:
//   "ATROUND1" | u64 xxh3 of the rest | round, fragment, step, name of the state before it, digest
//   of the fragment after it, count, segment_values, members, weights | the result, as it travels
// A round belongs behind a state if its `before` is that state's name: nothing else says what
// follows what. So what is torn or left over is passed over, and where one is missing the rest is.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/collective/round_result.h"
#include "atoll/collective/worker.h"

namespace atl::run {

/// A round on disk, without its result.
struct LoggedRound {
  std::filesystem::path file;
  int64_t round = 0;
  int64_t step = 0;
  int32_t fragment = 0;
  Digest before{};  // The name of the whole state before it (rounds::state_name()).
  Digest after{};   // Of the fragment's state after it.
};

/// The readable rounds in `folder`; none if there is no such folder. All bytes are read and
/// checked.
std::vector<LoggedRound> list_rounds(const std::filesystem::path& folder);

/// Throws InputError naming the file when it is damaged.
collective::CommittedRound read_round(const std::filesystem::path& file);

/// Writes rounds beside training. Not thread-safe.
class RoundLog {
 public:
  /// Adds to what is in `folder`. With more than `most_bytes` of its own it is full: a checkpoint
  /// is due, since to replay all that would not be worth it. `on_notice` is told, once, that the
  /// disk does not take rounds.
  RoundLog(std::filesystem::path folder, size_t most_bytes,
           std::function<void(const std::string&)> on_notice);
  ~RoundLog();

  bool is_full() const { return num_bytes_ >= most_bytes_; }
  /// Waits for the one before, if that is still being written.
  void add(std::shared_ptr<const collective::CommittedRound> round, const Digest& before);
  /// A checkpoint of the present state begins. What is returned is to be called once it is
  /// complete, on any thread, and deletes the rounds that it includes, but the newest of each
  /// fragment: who removes a checkpoint goes back to the one before.
  std::function<void()> checkpoint_begins();
  /// Deletes all rounds but these.
  void keep_only(const std::vector<LoggedRound>& rounds);

 private:
  void find_earlier();

  std::filesystem::path folder_;
  size_t most_bytes_;
  std::function<void(const std::string&)> on_notice_;
  std::vector<std::filesystem::path> added_;  // Since the last checkpoint began.
  size_t num_bytes_ = 0;                      // Of `added_`.
  bool has_failed_ = false;
  std::string error_;          // Of the job.
  collective::Worker worker_;  // Last: its job uses the others.
};

}  // namespace atl::run
