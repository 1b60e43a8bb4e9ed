#pragma once
// Whether servers compute what their model says. A gateway recomputes the beginning of a text that
// has passed a chain, from its tokens, with the weights of its own files, and holds beside it what
// each server has seen: its fingerprints of the rows that came, and of those that it made of them
// (fingerprint.h). Pure.
//
// Who is a liar hangs on nobody's word against another's:
//
//   its rows are wrong by its own word, and those that came were right       it is a liar
//   its rows are right by its word, and wrong as the gateway got them        it is a liar
//   its rows are right by its word, and wrong by that of the next server     one of the two is
//
// Of two who contradict each other neither can prove anything: they are not put side by side again.
// Who contradicts two others is held to be the liar: to blame an honest server it takes two.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/messages.h"

namespace atl::chain {

/// One under way.
struct Audit {
  uint64_t session = 0;  // Its number.
  std::vector<Hop> hops;
  std::vector<std::string> servers;  // The names of the hops'.
  int64_t end = 0;                   // Its first tokens, as many,
  int64_t unseen = 0;                // of which some server has not read so many.
  /// Rows may have come from servers that are not in the chain any more.
  bool is_mixed = false;
  bool is_rounded = false;  // The text began so.
  Time since{};
  std::vector<Testimony> said;  // Of each hop; without fingerprints until it was heard.

  bool is_heard() const;
};

/// What of a text has come to its gateway.
class Arrivals {
 public:
  /// Of rows from this position on, by that session. Those of another one are forgotten.
  void add(uint64_t session, int64_t begin, const std::vector<Fingerprint>& arrived);
  /// The text is another one from this position on.
  void go_back(int64_t position);
  /// From begin() on; none where those that are here are another session's.
  std::vector<Fingerprint> of(uint64_t session) const;
  int64_t begin() const { return begin_; }

 private:
  uint64_t session_ = 0;
  int64_t begin_ = 0;
  std::vector<Fingerprint> fingerprints_;
};

/// Relative errors (difference()).
struct Recomputed {
  struct Hop {
    double received = 0;
    double made = 0;
    bool is_restored = false;  // Some of its keys and values were made elsewhere.
  };
  uint64_t number = 0;    // The audit's.
  std::vector<Hop> hops;  // Empty: it could not be recomputed.
  double arrived = 0;     // At the gateway.
};

struct Verdict {
  enum class Kind : uint8_t {
    kGood,
    kLiar,           // The hop is.
    kContradiction,  // Between the hop and the next one.
    kUnknown,        // Something is wrong, and who has done it may be gone.
  };
  Kind kind = Kind::kGood;
  size_t hop = 0;
  std::string reason = {};
};
Verdict judge(const Recomputed& found, bool is_mixed);

}  // namespace atl::chain
