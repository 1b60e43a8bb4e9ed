#pragma once
// A gateway's Conductor and servers in virtual time, which can be killed, hang, forget and run out
// of memory. What a layer makes of a token hangs on all the tokens before it, so that one that was
// lost, doubled or read in another order shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/random.h"
#include "atoll/chain/conductor.h"
#include "atoll/chain/server_session.h"

namespace atl::chain {

using std::chrono::milliseconds;

constexpr int32_t kLayers = 12;
constexpr uint64_t kGateway = 77;

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15 + b + 0x1234567;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

inline Bytes bytes_of(uint64_t value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline uint64_t value_at(const Rows& rows, int64_t position) {
  uint64_t value = 0;
  std::memcpy(&value, rows.rows_TC.data() + (position - rows.begin) * sizeof value, sizeof value);
  return value;
}

/// A row is a number: what fingerprints are taken of.
inline Fingerprint seen(Witness& witness, uint64_t value) {
  const auto row = static_cast<float>(value % 1'000'003 + 1);
  return witness.see({&row, 1}, 1).front();
}

/// Keys and values of one text at some layers.
class Memory {
 public:
  void truncate(int64_t length) {
    for (auto& [layer, states] : states_) states.resize(static_cast<size_t>(length));
  }
  uint64_t read(Span layers, uint64_t x) {
    for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
      auto& states = states_[layer];
      states.push_back(mixed(states.empty() ? 0 : states.back(), x));
      x = mixed(states.back(), static_cast<uint64_t>(layer));
    }
    return x;
  }

 private:
  std::map<int32_t, std::vector<uint64_t>> states_;
};

/// The text that the model makes of a prompt, read alone.
inline std::vector<uint64_t> undisturbed(std::vector<uint64_t> tokens, size_t length) {
  Memory memory;
  for (size_t i = 0; i < length; ++i) {
    const uint64_t made = memory.read({0, kLayers}, tokens[i]) % 1000;
    if (i + 1 == tokens.size() && tokens.size() < length) tokens.push_back(made);
  }
  return tokens;
}

class SimulatedChain {
 public:
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
    std::vector<std::function<void()>> held;  // What came while it hung.
  };

  explicit SimulatedChain(uint64_t seed, ConductorOptions options = {}) : seed_(seed) {
    options.gateway = kGateway;
    options.num_layers = kLayers;
    options.chunk_tokens = 8;
    options.audit_seed = seed;
    conductor_ = std::make_unique<Conductor>(options);
  }

  Conductor& conductor() { return *conductor_; }
  std::map<std::string, Server>& servers() { return servers_; }
  std::map<Conductor::Key, std::vector<uint64_t>>& texts() { return texts_; }
  std::map<Conductor::Key, std::string>& refused() { return refused_; }
  /// Who was accused, and how many rows it had read until then.
  std::map<std::string, int64_t>& accused() { return accused_; }
  uint64_t random(uint64_t below) { return random_bits(seed_, 0, ++num_drawn_) % below; }

  void add_server(const std::string& address, Span layers) {
    servers_[address] = {
        .layers = layers, .witness = {}, .sessions = {}, .forgotten = {}, .held = {}};
    tell();
  }
  void tell() {
    std::vector<Lease> leases;
    for (const auto& [address, server] : servers_) {
      if (!server.is_up) continue;
      leases.push_back({.name = address,
                        .address = address,
                        .num_layers = kLayers,
                        .state = LeaseState::kServing,
                        .layers = server.layers});
    }
    conductor_->servers(leases, now_);
    act();
  }
  void kill(const std::string& address) {
    Server& server = servers_.at(address);
    server.is_up = false;
    server.life += 1;
    server.hangs = false;
    server.sessions.clear();
    server.held.clear();
    if (!std::exchange(server.is_connected, false)) return;
    after(1, [this, address] {
      conductor_->lost(address, "killed", now_);
      act();
    });
  }
  void start(const std::string& address) {
    servers_.at(address).is_up = true;
    tell();
  }
  /// Of some session, if it has one, with some fault.
  void complain(const std::string& address) {
    const Server& server = servers_.at(address);
    if (server.sessions.empty() || server.hangs) return;
    const auto& session = server.sessions.begin()->second.session;
    complain(address, session.id(), session.epoch(),
             static_cast<Fault>(random(num_values(Fault()))));
  }
  void hang(const std::string& address) { servers_.at(address).hangs = true; }
  void wake(const std::string& address) {
    Server& server = servers_.at(address);
    server.hangs = false;
    for (auto& deliver : std::exchange(server.held, {})) deliver();
  }

  void ask(Conductor::Key key, const std::vector<uint64_t>& prompt, size_t length) {
    texts_[key] = prompt;
    prompts_[key] = prompt.size();
    lengths_[key] = length;
    Conductor::Text asked = text(key);
    for (const auto& [other, tokens] : texts_) {
      if (other == key || (is_done(other) && !kept_.contains(other))) continue;
      const auto same = std::ranges::mismatch(prompt, tokens).in1 - prompt.begin();
      const int64_t known = is_done(other) ? kept_.at(other) : std::ssize(prompt);
      const int64_t num_shared = std::min({same, std::ssize(prompt) - 1, known});
      if (num_shared > asked.num_shared) {
        asked.shares_with = other;
        asked.num_shared = num_shared;
      }
    }
    conductor_->add(key, asked, now_);
    act();
  }
  bool is_done(Conductor::Key key) const { return texts_.at(key).size() == lengths_.at(key); }

  void run_for(milliseconds duration) {
    const Time end = now_ + duration;
    while (now_ < end) {
      const Time tick = last_tick_ + Conductor::kTick;
      if (!queue_.empty() && queue_.top().time <= std::min(tick, end)) {
        const auto what = queue_.top().what;
        now_ = std::max(now_, queue_.top().time);
        queue_.pop();
        what();
      } else if (tick <= end) {
        now_ = last_tick_ = tick;
        conductor_->tick(now_);
        act();
      } else {
        now_ = end;
      }
    }
  }
  Time now() const { return now_; }
  /// Sessions that a server has begun with what another one had read.
  int64_t num_shared() const { return num_shared_; }
  /// Texts that are over, and how much of each is kept.
  const std::map<Conductor::Key, int64_t>& kept() const { return kept_; }

 private:
  struct Later {
    Time time;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Later& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  Conductor::Text text(Conductor::Key key) {
    const auto count = static_cast<int64_t>(texts_.at(key).size());
    return {.num_tokens = count + std::ssize(drafts_[key]),
            .num_guessed = std::ssize(drafts_[key]),
            .wanted_from = count - 1,
            .num_to_come = 20};
  }
  /// What may come next, some of it right.
  void draft(Conductor::Key key) {
    std::vector<uint64_t>& drafts = drafts_[key];
    if (!drafts.empty() || random(2) == 0) return;
    const std::vector<uint64_t>& tokens = texts_.at(key);
    const auto right = undisturbed(tokens, std::min(tokens.size() + 5, lengths_.at(key)));
    for (size_t i = tokens.size(); i < right.size(); ++i) {
      drafts.push_back(random(4) == 0 ? random(1000) : right[i]);
    }
  }
  void after(int64_t ms, std::function<void()> what) {
    queue_.push({now_ + milliseconds(ms), ++number_, std::move(what)});
  }
  /// In order between two ends, some milliseconds later.
  void deliver(const std::string& from, const std::string& to, std::function<void()> what) {
    Time& last = last_delivery_[{from, to}];
    last = std::max(last, now_ + milliseconds(1 + random(5)));
    queue_.push({last, ++number_, std::move(what)});
  }
  void to_server(const std::string& from, const std::string& address, const Message& message) {
    const auto found = servers_.find(address);
    if (found == servers_.end() || !found->second.is_up) return;
    deliver(from, address, [this, address, message, life = found->second.life] {
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
  void to_gateway(const std::string& address, const std::function<void()>& hear) {
    deliver(address, "", [this, address, hear, life = servers_.at(address).life] {
      if (servers_.at(address).life != life) return;
      hear();
      act();
    });
  }
  void complain(const std::string& address, const SessionId& id, uint32_t epoch, Fault fault) {
    to_gateway(address, [this, address, id, epoch, fault] {
      conductor_->trouble(address, {.session = id, .epoch = epoch, .fault = fault, .reason = {}},
                          now_);
    });
  }

  void hear_at(const std::string& address, const Message& message) {
    Server& server = servers_.at(address);
    if (const auto* ping = std::get_if<Ping>(&message)) {
      to_gateway(address, [this, address, number = ping->number] {
        conductor_->pong(address, {.number = number}, now_);
      });
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
      if (work->num_shared > 0 && work->begin == work->num_shared &&
          other != server.sessions.end() && other->second.memory_length >= work->num_shared &&
          other->second.session.length() >= work->num_shared &&
          other->second.session.layers() == work->hops.front().layers &&
          !server.sessions.contains(work->session)) {
        opened = {ServerSession(work->session, other->second.session, work->num_shared),
                  other->second.memory, work->num_shared};
        opened.memory.truncate(work->num_shared);
        ++num_shared_;
      }
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
    to_gateway(address, [this, address, said] { conductor_->testimony(address, said, now_); });
  }
  /// What each server of a chain should have seen.
  void recompute(const Conductor::Recompute& asked) {
    ASSERT_TRUE(set_aside_.contains(asked.number));
    const auto set_aside = set_aside_.extract(asked.number);
    const auto& [tokens, arrived, arrived_from] = set_aside.mapped();
    Recomputed found{.number = asked.number, .hops = {}};
    const auto errors_of = [&](const std::vector<Fingerprint>& said, const auto& values,
                               size_t from) {
      std::vector<float> rows;
      for (size_t i = from; i < values.size(); ++i) {
        rows.push_back(static_cast<float>(values[i] % 1'000'003 + 1));
      }
      const size_t count = std::min(rows.size(), said.size());
      return difference(std::span(said).first(count), std::span(rows).first(count));
    };
    std::vector<uint64_t> values = tokens;
    for (size_t i = 0; i < asked.layers.size(); ++i) {
      Recomputed::Hop& hop = found.hops.emplace_back();
      hop.received = errors_of(asked.said[i].received, values, 0);
      Memory memory;
      for (uint64_t& value : values) value = memory.read(asked.layers[i], value);
      hop.made = errors_of(asked.said[i].made, values, 0);
    }
    found.arrived = errors_of(arrived, values, static_cast<size_t>(arrived_from));
    after(1 + static_cast<int64_t>(random(20)), [this, found] {
      conductor_->recomputed(found, now_);
      act();
    });
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
    Rows made{.begin = length, .num_tokens = static_cast<uint32_t>(count), .rows_TC = {}};
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
    if (const auto* work = std::get_if<Work>(&message)) {
      return to_server(address, work->hops.front().address, message);
    }
    to_gateway(address, [this, address, output = std::get<Output>(message)] {
      const auto arrived = conductor_->output(address, output, now_);
      act();
      if (!arrived) return;
      std::vector<uint64_t>& tokens = texts_.at(arrived->key);
      std::vector<Fingerprint> came;
      const Rows rows{
          .begin = output.begin, .num_tokens = output.num_tokens, .rows_TC = output.rows_TC};
      for (int64_t i = arrived->begin; i < rows.end(); ++i) {
        came.push_back(seen(witness_, value_at(rows, i)));
      }
      arrivals_[arrived->key].add(arrived->session, arrived->begin, came);
      std::vector<uint64_t>& drafts = drafts_[arrived->key];
      int64_t num_same = std::ssize(tokens) + std::ssize(drafts);
      for (int64_t i = arrived->begin; i < rows.end() && !is_done(arrived->key); ++i) {
        ASSERT_EQ(i + 1, std::ssize(tokens)) << "one is wanted at a time";
        tokens.push_back(value_at(rows, i) % 1000);
        const bool is_right = !drafts.empty() && drafts.front() == tokens.back();
        if (!is_right) {
          num_same = std::ssize(tokens) - 1;
          drafts.clear();
          break;
        }
        drafts.erase(drafts.begin());
      }
      if (is_done(arrived->key)) {
        if (const int64_t count = conductor_->rest(arrived->key, now_); count > 0) {
          kept_[arrived->key] = count;
        }
      } else {
        draft(arrived->key);
        arrivals_[arrived->key].go_back(num_same);
        conductor_->change(arrived->key, text(arrived->key), num_same);
      }
    });
  }

  void act() {
    for (auto& action : conductor_->take_actions()) {
      if (const auto* connect = std::get_if<Conductor::Connect>(&action)) {
        after(2, [this, address = connect->address] {
          Server& server = servers_.at(address);
          server.is_connected = server.is_up;
          if (server.is_up) {
            conductor_->greeted(address, {.layers = server.layers}, now_);
          } else {
            conductor_->lost(address, "refused", now_);
          }
          act();
        });
      } else if (const auto* hang_up = std::get_if<Conductor::HangUp>(&action)) {
        after(1, [this, address = hang_up->address] {
          servers_.at(address).sessions.clear();
          conductor_->lost(address, "hung up", now_);
          act();
        });
      } else if (const auto* say = std::get_if<Conductor::Say>(&action)) {
        to_server("", say->address, say->message);
      } else if (auto* feed = std::get_if<Conductor::Feed>(&action)) {
        Work work = feed->work;
        work.num_tokens = static_cast<uint32_t>(feed->end - work.begin);
        for (int64_t i = work.begin; i < feed->end; ++i) {
          const std::vector<uint64_t>& tokens = texts_.at(feed->key);
          const auto at = static_cast<size_t>(i);
          const Bytes row =
              bytes_of(at < tokens.size() ? tokens[at] : drafts_[feed->key].at(at - tokens.size()));
          work.rows_TC.insert(work.rows_TC.end(), row.begin(), row.end());
        }
        to_server("", feed->address, work);
      } else if (const auto* refuse = std::get_if<Conductor::Refuse>(&action)) {
        refused_[refuse->key] = refuse->reason;
      } else if (const auto* audit = std::get_if<Conductor::SetAside>(&action)) {
        const auto& tokens = texts_.at(audit->key);
        set_aside_[audit->number] = {{tokens.begin(), tokens.begin() + audit->end},
                                     arrivals_[audit->key].of(audit->session),
                                     arrivals_[audit->key].begin()};
      } else if (const auto* heard = std::get_if<Conductor::Recompute>(&action)) {
        recompute(*heard);
      } else if (const auto* gone = std::get_if<Conductor::Gone>(&action)) {
        kept_.erase(gone->key);
      } else if (const auto* dropped = std::get_if<Conductor::Drop>(&action)) {
        set_aside_.erase(dropped->number);
      } else if (const auto* accused = std::get_if<Conductor::Accuse>(&action)) {
        accused_[accused->server] = servers_.at(accused->address).num_read;
        after(1, [this, address = accused->address] {
          servers_.at(address).sessions.clear();
          conductor_->lost(address, "a liar", now_);
          act();
        });
      }
    }
  }

  int64_t num_shared_ = 0;
  const uint64_t seed_;
  uint64_t num_drawn_ = 0;
  Time now_{};
  Time last_tick_{};
  uint64_t number_ = 0;
  std::priority_queue<Later> queue_;
  std::unique_ptr<Conductor> conductor_;
  std::map<std::string, Server> servers_;
  std::map<std::pair<std::string, std::string>, Time> last_delivery_;
  std::map<Conductor::Key, std::vector<uint64_t>> texts_;
  std::map<Conductor::Key, std::vector<uint64_t>> drafts_;  // Behind the texts' tokens.
  std::map<Conductor::Key, size_t> prompts_, lengths_;
  std::map<Conductor::Key, int64_t> kept_;
  std::map<Conductor::Key, std::string> refused_;
  std::map<Conductor::Key, Arrivals> arrivals_;
  struct Aside {
    std::vector<uint64_t> tokens;
    std::vector<Fingerprint> arrived;
    int64_t arrived_from = 0;
  };
  std::map<uint64_t, Aside> set_aside_;
  std::map<std::string, int64_t> accused_;
  Witness witness_;
};

}  // namespace atl::chain
