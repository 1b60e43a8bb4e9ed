#pragma once
// What this member has for those who have missed it: the results of the last rounds, and copies of
// fragments' states, which are made when somebody asks and serve all who do. Pure: requests go in,
// answers and jobs come out; how fast answers go is another's (lending_share.h).
//
// Invariants: every request is answered once, at once or when the copy that it waits for is there,
// unless its asker is forgotten. One copy is made at a time. A state that some piece was lent of
// stays for a minute, so that all of a newcomer's pieces are of one state; results, of as many
// bytes as was said and the states beside them, and the last two however large.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/round_result.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

/// Copies a fragment's state after a round; nothing if the state is of another. Does not throw.
using CopyJob = std::function<std::shared_ptr<const Bytes>()>;

class Lender {
 public:
  static constexpr size_t kLeastResults = 2;  // Kept, however large.
  static constexpr size_t kMaxUnanswered = 256;
  static constexpr Duration kPatience = std::chrono::seconds(60);  // From the last piece on.

  /// To one request.
  struct Answer {
    int32_t to = 0;                     // Number of the member.
    swarm::Fetch fetch;                 // What it gets: bytes [begin, end) of the blob.
    std::shared_ptr<const Bytes> blob;  // Null: it is not here, or has no such bytes.
  };

  /// Of results it keeps so many bytes, whether or not anybody asks.
  explicit Lender(size_t result_bytes) : most_bytes_(result_bytes) {}
  /// Without it states are not here.
  void provide(StateProvider provider) { provider_ = std::move(provider); }

  /// A round was committed, or its result was fetched.
  void keep(const std::shared_ptr<const CommittedRound>& committed);
  /// Nothing: it is answered by copied().
  std::optional<Answer> ask(int32_t number, const swarm::Fetch& fetch, Time now);
  /// The copy to be made now, each once; then say copied(). Ask after ask() and copied().
  CopyJob take_job();
  /// What came of it. Who waits for another copy waits on.
  std::vector<Answer> copied(std::shared_ptr<const Bytes> state, Time now);
  /// The member is gone, or will ask again over its next connection.
  void forget(int32_t number);
  /// Pieces of states are on their way.
  void lent(Time now);
  /// Lets go of states that nobody asks for any more.
  void tick(Time now);

 private:
  struct Snapshot {
    int64_t round = 0;
    std::shared_ptr<const Bytes> bytes;
    Time used{};
  };
  using Request = std::pair<int32_t, swarm::Fetch>;  // By number.

  static Answer piece(int32_t number, const swarm::Fetch& fetch, std::shared_ptr<const Bytes> blob);
  std::optional<Answer> ask_state(int32_t number, const swarm::Fetch& fetch, Time now);

  size_t most_bytes_;
  StateProvider provider_;
  std::map<int64_t, std::shared_ptr<const CommittedRound>> results_;  // By round.
  size_t result_bytes_ = 0;                                           // Of those.
  std::map<int32_t, Snapshot> snapshots_;                             // By fragment.
  std::vector<Request> unanswered_;
  std::optional<swarm::Fetch> copying_;  // The first that asked for what is being copied.
  bool is_out_ = false;                  // That job.
};

}  // namespace atl::collective
