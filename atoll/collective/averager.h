#pragma once
// A weighted mean among the members of a run, agreed round by round. `sync` calls it and knows
// nothing of peers; the swarm's session implements it over a transport, Alone for one replica.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/base/result.h"

namespace atl::collective {

/// What this replica brings to one round.
struct Contribution {
  int64_t round = 0;     // Numbered for the whole run, from 0.
  int32_t fragment = 0;  // Which part of the parameters.
  int64_t step = 0;      // Inner steps taken when the values were snapshotted.
  int64_t weight = 0;    // Tokens learned since the last sync of this fragment; > 0.
  /// The snapshot. Must stay valid and unchanged until wait(round) has returned.
  std::span<const float> values;
  /// Runs on the exchange thread once the mean is known: computes the outer step into spare buffers
  /// and returns the digest that all members compare before the commit. `mean` is valid only
  /// inside.
  std::function<Digest(std::span<const float> mean)> prepare;
};

/// A committed round: every member holds the same result.
struct Commit {
  int64_t round = 0;
  Digest digest{};
  std::vector<std::string> members;  // Names, sorted: the order of summation.
  bool stop = false;                 // All members checkpoint after this round and end (Ctrl-C).
};

struct ExchangeStats {
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  double exchange_seconds = 0;  // From begin() to the commit, summed over rounds.
};

/// Thread rule: begin() and wait() are called by the training thread.
class Averager {
 public:
  virtual ~Averager() = default;
  virtual int num_members() const = 0;
  /// Starts a round in the background. Several rounds may be in flight.
  virtual void begin(Contribution contribution) = 0;
  /// Blocks until the round is committed. A failure means the run is over for this member: it names
  /// who was lost and why.
  [[nodiscard]] virtual Result<Commit> wait(int64_t round) = 0;
  virtual ExchangeStats stats() const = 0;
};

/// A group of one: the mean is the value itself. For `single` runs and tests.
class Alone final : public Averager {
 public:
  int num_members() const override { return 1; }
  void begin(Contribution contribution) override;
  Result<Commit> wait(int64_t round) override;
  ExchangeStats stats() const override { return {}; }

 private:
  std::vector<Commit> commits_;
};

}  // namespace atl::collective
