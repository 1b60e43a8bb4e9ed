#pragma once
// Servers of a chain and the lines between them in virtual time: they can be killed, hang, forget,
// lie and run out of memory. What they tell a gateway a derived class hears.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/random.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/server_session.h"
#include "atoll/testing/simulated_text.h"

namespace atl::chain {

using std::chrono::milliseconds;

class SimulatedBlockServers {
 public:
  static constexpr int64_t kKeptTokens = 8;  // Of a chunk.

  struct Served {
    ServerSession session;
    Memory memory;
    int64_t memory_length = 0;
  };
  enum class Lie : uint8_t {
    kNone,
    kRows,      // It computes something else, and its fingerprints are of that.
    kWire,      // It sends something else than its fingerprints are of.
    kReceived,  // It says that it got something else.
    kSilence,   // It answers no question.
    kHalf,      // It answers half.
  };
  struct Server {
    Span layers;
    bool is_up = true;
    bool hangs = false;
    bool is_connected = false;
    int life = 0;
    int64_t room = 1 << 20;  // Positions.
    Lie lie = Lie::kNone;
    int64_t num_read = 0;  // Rows.
    Witness witness;
    std::map<SessionId, Served> sessions;
    ForgottenSessions forgotten;
    std::vector<std::function<void()>> held;         // What came while it hung.
    std::map<std::pair<Span, Digest>, Memory> kept;  // By layers and chunk.
  };

  SimulatedBlockServers(const SimulatedBlockServers&) = delete;
  SimulatedBlockServers& operator=(const SimulatedBlockServers&) = delete;

  std::map<std::string, Server>& servers() { return servers_; }
  uint64_t random(uint64_t below) { return random_bits(seed_, 0, ++num_drawn_) % below; }
  Time now() const { return now_; }
  /// Sessions that a server has begun with what another one had read.
  int64_t num_shared() const { return num_shared_; }
  /// Those of which a server is told that they begin as another one which it is to read as well.
  int64_t num_to_share() const { return num_to_share_; }

  /// Of some session, if it has one, with some fault.
  void complain(const std::string& address) {
    const Server& server = servers_.at(address);
    if (server.sessions.empty() || server.hangs) return;
    const auto& session = server.sessions.begin()->second.session;
    complain(address, session.id(), session.epoch(),
             static_cast<Fault>(random(num_values(Fault()))));
  }
  int64_t restoring_ms = 1;  // What it takes to restore something, and up to 200 more.
  bool rounds_unasked = false;
  bool says_too_few_levels = false;
  /// Sessions that a server has begun with what was kept.
  int64_t num_restored() const { return num_restored_; }

  void hang(const std::string& address) { servers_.at(address).hangs = true; }
  void wake(const std::string& address) {
    Server& server = servers_.at(address);
    server.hangs = false;
    for (auto& deliver : std::exchange(server.held, {})) deliver();
  }

 protected:
  explicit SimulatedBlockServers(uint64_t seed) : seed_(seed) {}
  virtual ~SimulatedBlockServers() = default;

  /// By the gateway, of that server.
  virtual void heard(const std::string& address, const Message& message) = 0;
  /// The next thing that happens till then; false: nothing does.
  bool step(Time until) {
    if (queue_.empty() || queue_.top().time > until) return false;
    const auto what = queue_.top().what;
    now_ = std::max(now_, queue_.top().time);
    queue_.pop();
    what();
    return true;
  }
  void after(int64_t ms, std::function<void()> what) {
    queue_.push({now_ + milliseconds(ms), ++number_, std::move(what)});
  }
  void to_server(const std::string& from, const std::string& address, const Message& message) {
    const auto found = servers_.find(address);
    if (found == servers_.end() || !found->second.is_up) return;
    deliver(from, address, message, [this, address, message, life = found->second.life] {
      Server& server = servers_.at(address);
      if (!server.is_up || server.life != life) return;
      const auto hear = [this, address, message, life] {
        if (servers_.at(address).life == life) hear_at(address, message);
      };
      if (server.hangs) {
        server.held.emplace_back(hear);
      } else {
        hear();
      }
    });
  }

  Time now_{};
  std::map<std::string, Server> servers_;

 private:
  struct Later {
    Time time;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Later& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  /// Some milliseconds later, in order between two ends: rows on one line, all else on another.
  void deliver(const std::string& from, const std::string& to, const Message& message,
               std::function<void()> what) {
    const bool has_rows =
        std::holds_alternative<Work>(message) || std::holds_alternative<Output>(message);
    Time& last = last_delivery_[{from, to, has_rows}];
    last = std::max(last, now_ + milliseconds(1 + random(5)));
    queue_.push({last, ++number_, std::move(what)});
  }
  void to_gateway(const std::string& address, const Message& message) {
    deliver(address, "", message, [this, address, message, life = servers_.at(address).life] {
      if (servers_.at(address).life == life) heard(address, message);
    });
  }
  void complain(const std::string& address, const SessionId& id, uint32_t epoch, Fault fault) {
    to_gateway(address, Trouble{.session = id, .epoch = epoch, .fault = fault, .reason = {}});
  }

  void hear_at(const std::string& address, const Message& message) {
    Server& server = servers_.at(address);
    if (const auto* ping = std::get_if<Ping>(&message)) {
      to_gateway(address, Pong{.number = ping->number});
    } else if (const auto* forget = std::get_if<Forget>(&message)) {
      const auto known = server.sessions.find(forget->session);
      if (known != server.sessions.end() && known->second.session.epoch() <= forget->epoch) {
        server.sessions.erase(known);
      }
      server.forgotten.add(*forget);
    } else if (const auto* rest = std::get_if<Rest>(&message)) {
      const auto known = server.sessions.find(rest->session);
      if (known != server.sessions.end()) known->second.session.rest();
    } else if (const auto* question = std::get_if<Testify>(&message)) {
      testify(address, *question);
    } else if (const auto* keep = std::get_if<Keep>(&message)) {
      this->keep(address, *keep);
    } else if (const auto* order = std::get_if<Restore>(&message)) {
      after(restoring_ms + static_cast<int64_t>(random(200)),
            [this, address, order = *order] { restore(address, order); });
    } else if (const auto* reroute = std::get_if<Reroute>(&message)) {
      const auto found = server.sessions.find(reroute->session);
      const auto again =
          found == server.sessions.end() ? std::nullopt : found->second.session.reroute(*reroute);
      if (!again) return complain(address, reroute->session, reroute->epoch, Fault::kNotKept);
      for (const Message& sent : *again) send_on(address, sent);
    } else if (const auto* work = std::get_if<Work>(&message)) {
      if (server.forgotten.has(work->session, work->epoch)) return;
      const auto known = server.sessions.find(work->session);
      if (known != server.sessions.end() && known->second.session.rests()) return;
      Served opened{ServerSession(work->session), {}};
      const auto other = server.sessions.find({.gateway = kGateway, .number = work->shares_with});
      if (work->num_shared > 0 && work->rows.begin == work->num_shared &&
          other != server.sessions.end() && other->second.memory_length >= work->num_shared &&
          other->second.session.length() >= work->num_shared &&
          other->second.session.layers() == work->hops.front().layers &&
          !server.sessions.contains(work->session)) {
        opened = {ServerSession(work->session, other->second.session, work->num_shared),
                  other->second.memory, work->num_shared};
        opened.memory.truncate(work->num_shared);
        ++num_shared_;
      }
      num_to_share_ += work->rows.begin == 0 && other != server.sessions.end() &&
                       !server.sessions.contains(work->session);
      Served& served = server.sessions.try_emplace(work->session, std::move(opened)).first->second;
      const auto taken = served.session.take(*work);
      for (const Message& sent : served.session.take_again()) send_on(address, sent);
      if (taken != ServerSession::Taken::kGood) {
        server.sessions.erase(work->session);
        return complain(address, work->session, work->epoch, Fault::kNotKept);
      }
      after(1 + static_cast<int64_t>(random(4)),
            [this, address, id = work->session, life = server.life] {
              Server& here = servers_.at(address);
              if (here.life != life) return;
              const auto compute = [this, address, id] { read_at(address, id); };
              if (here.hangs) {
                here.held.emplace_back(compute);
              } else {
                compute();
              }
            });
    }
  }
  void keep(const std::string& address, const Keep& message) {
    Server& server = servers_.at(address);
    const auto found = server.sessions.find(message.session);
    if (found == server.sessions.end()) return;
    const Span layers = found->second.session.layers();
    for (size_t i = 0; i < message.chunks.size(); ++i) {
      const int64_t end = (message.first + static_cast<int64_t>(i) + 1) * kKeptTokens;
      if (end > std::min(found->second.memory_length, found->second.session.length())) return;
      Memory memory = found->second.memory;
      memory.truncate(end);
      server.kept[{layers, message.chunks[i].secret}] = memory;
      const auto other = servers_.find(message.neighbour);
      if (other == servers_.end() || !other->second.is_up || random(8) == 0) continue;
      other->second.kept[{layers, message.chunks[i].secret}] = std::move(memory);
    }
  }
  void restore(const std::string& address, const Restore& order) {
    Server& server = servers_.at(address);
    if (!server.is_up || server.forgotten.has(order.session, order.epoch)) return;
    Restored answer{.session = order.session, .epoch = order.epoch};
    Memory memory;
    for (const kv::Chunk& chunk : order.chunks) {
      std::vector<std::string> holders{address};
      holders.insert(holders.end(), order.holders.begin(), order.holders.end());
      const int64_t before = answer.end;
      for (const std::string& holder : holders) {
        const auto other = servers_.find(holder);
        if (other == servers_.end() || !other->second.is_up) continue;
        const auto kept = other->second.kept.find({order.layers, chunk.secret});
        if (kept == other->second.kept.end()) continue;
        memory = kept->second;
        answer.end += kKeptTokens;
        // As if rounding changed nothing.
        const bool may_round = order.round_after_ms >= 0 || rounds_unasked;
        answer.levels.insert(answer.levels.end(), static_cast<size_t>(order.layers.size()),
                             may_round && holder != address ? 1 : 0);
        break;
      }
      if (answer.end == before) break;
    }
    if (answer.end > 0 && !server.sessions.contains(order.session)) {
      ++num_restored_;
      server.sessions.emplace(order.session,
                              Served{ServerSession(order.session, order.layers, answer.end),
                                     std::move(memory), answer.end});
    } else {
      answer.end = 0;
      answer.levels.clear();
    }
    if (says_too_few_levels && !answer.levels.empty()) answer.levels.pop_back();
    to_gateway(address, answer);
  }
  void testify(const std::string& address, const Testify& question) {
    Server& server = servers_.at(address);
    Testimony said{
        .session = question.session, .audit = question.audit, .received = {}, .made = {}};
    const auto found = server.sessions.find(question.session);
    if (found != server.sessions.end()) said = found->second.session.testify(question);
    if (server.lie == Lie::kSilence) return;
    if (server.lie == Lie::kHalf) said.made.resize(said.made.size() / 2);
    if (server.lie == Lie::kReceived) {
      for (Fingerprint& each : said.received) each.value *= 1.01F;
    }
    to_gateway(address, said);
  }
  void read_at(const std::string& address, const SessionId& id) {
    Server& server = servers_.at(address);
    const auto found = server.sessions.find(id);
    if (found == server.sessions.end()) return;
    auto& [session, memory, length] = found->second;
    memory.truncate(std::min(length, session.length()));
    length = session.length();
    const int64_t count = session.num_unread();
    if (count == 0) return;
    const auto held = [&] {
      int64_t positions = count;
      for (const auto& [other, served] : server.sessions) positions += served.memory_length;
      return positions;
    };
    while (held() > server.room) {
      const auto resting = std::ranges::find_if(
          server.sessions, [](const auto& each) { return each.second.session.rests(); });
      if (resting == server.sessions.end()) break;
      complain(address, resting->first, 1, Fault::kNotKept);
      server.sessions.erase(resting);
    }
    if (held() > server.room) {
      const uint32_t epoch = session.epoch();
      server.sessions.erase(id);
      return complain(address, id, epoch, Fault::kNoMemory);
    }
    Rows made{.begin = length, .num_tokens = static_cast<uint32_t>(count)};
    for (const Rows& rows : session.unread(count)) {
      for (int64_t i = rows.begin; i < rows.end(); ++i) {
        const uint64_t came = value_at(rows, i);
        uint64_t value = memory.read(session.layers(), came);
        if (server.lie == Lie::kRows) value = mixed(value, 1);
        session.note({seen(server.witness, came)}, {seen(server.witness, value)});
        if (server.lie == Lie::kWire) value = mixed(value, 1);
        const Bytes row = bytes_of(value);
        made.rows_TC.insert(made.rows_TC.end(), row.begin(), row.end());
      }
    }
    server.num_read += count;
    length += count;
    if (auto sent = session.read(std::move(made))) send_on(address, *sent);
  }
  void send_on(const std::string& address, const Message& message) {
    const auto* work = std::get_if<Work>(&message);
    if (work == nullptr) return to_gateway(address, message);
    to_server(address, work->hops.front().address, message);
  }

  const uint64_t seed_;
  uint64_t num_drawn_ = 0;
  uint64_t number_ = 0;
  std::priority_queue<Later> queue_;
  std::map<std::tuple<std::string, std::string, bool>, Time> last_delivery_;
  int64_t num_shared_ = 0;
  int64_t num_to_share_ = 0;
  int64_t num_restored_ = 0;
};

}  // namespace atl::chain
