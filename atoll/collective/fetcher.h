#pragma once
// What this member has missed, and from whom it gets it: the results of rounds that were committed
// without one here, and, for a newcomer, the newest state of each fragment. Pure: commits, parts
// and refusals go in; requests go out through a function; what came whole is handed on.
//
// Invariants: results are handed on in the order of the commits, each once it is here. States are
// fetched before results, which would keep them from ever coming where rounds are faster than the
// line; what a state includes is not fetched, and when nobody holds a state any more a newer one
// does as well. A past round has no such way out: when nobody holds its result, this member ends.
//
// It reads what strangers send: nothing is taken that was not asked for (retrieval.h).
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/collective/retrieval.h"
#include "atoll/collective/round_result.h"
#include "atoll/collective/session.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

class Fetcher {
 public:
  /// Another member, who may be asked.
  struct Donor {
    int32_t number = 0;
    bool is_open = false;  // It can be asked now.
    bool is_lost = false;  // It cannot be reached, for now or for good.
  };
  /// Sends a request; the header names the round alone. False: it did not go out.
  using Ask = std::function<bool(int32_t number, const swarm::Fetch& fetch)>;

  using Record = std::shared_ptr<const CommittedRound>;
  /// Committed without a result here.
  struct Missing {
    swarm::Commit commit;
    Record record;  // With the result, once it is here.
  };
  struct Nothing {};
  struct State {
    int32_t fragment = 0;
    FetchedState state;
  };
  using Arrival = std::variant<Nothing, State, Record>;

  /// Who joins a run that is under way has not caught up without the states that the others hold.
  void start(const swarm::Start& start);
  /// A round was committed, with the result here.
  void committed(const swarm::Held& held) { held_[held.fragment] = held; }
  /// Without it.
  void miss(const swarm::Commit& commit, Time now);
  /// Without it, and its result is of no use here.
  void pass_over(const swarm::Commit& commit);
  /// The newest state of a fragment is wanted, `size` bytes. False: there is no such fragment.
  [[nodiscard]] bool fetch_state(int32_t fragment, size_t size);

  /// Asks whoever may have it for what is still missing. Fails when nobody has it and this member
  /// cannot go on without.
  [[nodiscard]] Result<void> ask(std::span<const Donor> donors, const Ask& ask, Time now);
  /// Who did not hold something may hold it now. True: ask() again. Fails when it has waited in
  /// vain for longer than `patience`.
  [[nodiscard]] Result<bool> retry(std::span<const Donor> donors, Duration patience, Time now);
  /// Those from whom nothing has come since, of what they were asked for: they are not asked for it
  /// again before retry().
  std::set<int32_t> give_up_on_silent(Time since);
  /// A part with its data, which lies elsewhere. Fails when its sender was not asked for it. Throws
  /// InputError when what is whole with it is no result.
  [[nodiscard]] Result<Arrival> receive(int32_t number, const swarm::Part& part,
                                        std::span<const std::byte> data, Time now);
  void refused(int32_t number, const swarm::NotHeld& answer);
  /// The connection to the member broke.
  void lost(int32_t number);

  /// The oldest that was missed, if its result is here.
  const Missing* next() const;
  Missing take_next();
  /// Nothing is missing.
  bool has_caught_up() const { return missing_.empty() && state_fetches_.empty(); }
  /// The round is behind this member, with or without its result.
  bool is_committed(int32_t fragment, int64_t round) const;
  /// The same, and nothing of it is missing.
  bool has_passed(int32_t fragment, int64_t round) const;

 private:
  struct StateFetch {
    size_t size = 0;  // 0: it was not asked for yet.
    swarm::Held held;
  };

  /// Whether anybody may have it.
  bool ask_for(Retrieval& retrieval, std::span<const Donor> donors, const Ask& ask, Time now);
  /// Begins, or begins anew, to fetch the newest state of a fragment.
  void fetch_held(int32_t fragment);
  Arrival arrived(Retrieval& retrieval);
  Arrival state_arrived(Retrieval& retrieval);

  std::map<int32_t, swarm::Held> held_;          // The newest commit, by fragment.
  std::map<uint64_t, Missing> missing_;          // By index.
  std::map<int32_t, StateFetch> state_fetches_;  // By fragment.
  std::vector<Retrieval> retrievals_;            // Of both.
};

}  // namespace atl::collective
