#pragma once
// What of a model's parts this machine fetches next, and from which of the servers that have them:
// a few at once, some pieces under way at each. Pure: what servers send and the time go in, actions
// come out. It reads what strangers send: a piece is kept only where its hash is the one that is
// wanted, and who sends another is left alone. Nobody is given up for being slow or away; as long
// as something is missing, all are asked again.
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/hash.h"
#include "atoll/chain/messages.h"

namespace atl::chain {

/// Not thread-safe. Every method may leave actions; do them in order.
class PartFetch {
 public:
  static constexpr size_t kMostServers = 4;  // Called at once,
  static constexpr size_t kMostAsked = 4;    // and pieces that each of them is asked for.
  /// Who was asked and says nothing for so long is given up for the moment.
  static constexpr Duration kPatience = std::chrono::seconds(20);
  /// Who lacks a part is asked for it again; it may be fetching it.
  static constexpr Duration kLacking = std::chrono::seconds(3);
  static constexpr Duration kFirstPause = std::chrono::milliseconds(250);
  static constexpr Duration kLongestPause = std::chrono::seconds(10);
  /// Who has sent what is not the model's is left alone.
  static constexpr Duration kDistrust = std::chrono::minutes(10);
  /// The user is told that nobody has a part.
  static constexpr Duration kHope = std::chrono::seconds(10);

  struct Call {
    std::string address;
  };
  struct HangUp {
    std::string address;
  };
  struct Ask {
    std::string address;
    Want want;
  };
  /// It is right: the hashes of the part, or a piece.
  struct Keep {
    Piece piece;
  };
  struct Tell {
    std::string sentence;
  };
  using Action = std::variant<Call, HangUp, Ask, Keep, Tell>;

  /// `model`: its digest.
  explicit PartFetch(std::string model) : model_(std::move(model)) {}

  /// The hashes of a part's pieces are wanted next; `num_pieces` 0: nobody knows how many.
  void want_hashes(int32_t part, const Digest& root, size_t num_pieces, Time now);
  /// These pieces are, of which this part has so many.
  void want_pieces(int32_t part, std::vector<Digest> hashes, std::vector<uint32_t> missing,
                   Time now);
  bool is_done() const { return open_.empty() && num_asked() == 0; }

  /// Who may have it, by address. Others are forgotten.
  void set_servers(const std::vector<std::string>& addresses, Time now);
  void opened(const std::string& address, Time now);
  void received(const std::string& address, Piece piece, Time now);
  /// The connection is gone, or could not be made.
  void lost(const std::string& address, Time now);
  void tick(Time now);

  std::vector<Action> take() { return std::exchange(actions_, {}); }

 private:
  enum class State : uint8_t { kAway, kCalled, kOpen };
  struct Server {
    State state = State::kAway;
    Time call_at{};  // Not before.
    Duration pause = kFirstPause;
    Time lacks_until{};  // What is wanted now.
    Time heard{};
    std::vector<int64_t> asked;  // Pieces.
  };

  void begin(int32_t part, std::deque<int64_t> open, Time now);
  void put_back(Server& server);
  void hang_up(const std::string& address, Time now);
  void distrust(const std::string& address, Server& server, const std::string& what, Time now);
  /// Why it is not what was asked for; empty where it is.
  std::string fault_of(const Piece& piece) const;
  size_t num_asked() const;

  const std::string model_;
  int32_t part_ = 0;
  Digest root_{};          // Of its hashes, when those are wanted.
  size_t num_pieces_ = 0;  // 0: unknown.
  std::vector<Digest> hashes_;
  std::deque<int64_t> open_;  // Wanted, and asked of nobody.
  Time progressed_{};
  bool is_told_ = false;  // That nobody has it.
  std::map<std::string, Server> servers_;
  std::vector<Action> actions_;
};

}  // namespace atl::chain
