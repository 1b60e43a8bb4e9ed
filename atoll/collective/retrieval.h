#pragma once
// Something that this member lacks and others hold, the same bytes at all of them: a fragment's
// state, in pieces from several members at once, or a round's result, from one. Pure: requests to
// send come out, parts go in. It reads what strangers send: nothing is taken that was not asked
// for.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

class Retrieval {
 public:
  /// Bytes [0, size) of a fragment's state after a round.
  static Retrieval of_state(int32_t fragment, int64_t round, size_t size);
  /// A round's result, of at most so many bytes.
  static Retrieval of_result(int32_t fragment, int64_t round, size_t most);

  /// What to ask this member for now; nothing if it has enough to do.
  std::optional<swarm::Fetch> request_to(int32_t number, Time now);
  /// A part, whose data lies elsewhere. Fails when it is not what was asked for.
  [[nodiscard]] Result<void> receive(int32_t number, const swarm::Part& part,
                                     std::span<const std::byte> data, Time now);
  /// The member does not hold it; `never`: nor will it.
  void refused(int32_t number, bool never);
  /// Those who did not hold it may hold it now. False: nobody is asked again.
  bool forgive();
  /// The connection to the member broke: it may be asked again.
  void lost(int32_t number);
  bool has_refused(int32_t number) const {
    return refused_.contains(number) || never_.contains(number);
  }
  bool never_holds(int32_t number) const { return never_.contains(number); }

  /// Of whom it waits for, those from whom nothing has come since.
  std::vector<int32_t> silent_since(Time then) const;
  /// When it began, or something of it came last.
  Time progressed() const { return progressed_; }
  void set_progressed(Time now) { progressed_ = now; }

  bool complete() const;
  Bytes take() { return std::move(bytes_); }
  swarm::PartKind kind() const { return kind_; }
  int32_t fragment() const { return fragment_; }
  int64_t round() const { return round_; }

 private:
  struct Piece {
    uint64_t begin = 0;
    uint64_t end = 0;  // Of a result that nobody has begun to send: 0.
    uint64_t next = 0;
  };
  Retrieval(swarm::PartKind kind, int32_t fragment, int64_t round);

  swarm::PartKind kind_;
  int32_t fragment_;
  int64_t round_;
  size_t most_ = 0;
  bool knows_size_ = false;
  Bytes bytes_;
  std::deque<Piece> open_;                      // Asked of nobody.
  std::map<int32_t, std::deque<Piece>> asked_;  // By member, in the order asked.
  std::map<int32_t, Time> heard_;               // When it was asked, or a part came.
  std::set<int32_t> refused_;
  std::set<int32_t> never_;
  Time progressed_{};
};

}  // namespace atl::collective
