#pragma once
// A gateway's Conductor, its texts and their servers in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/chain/conductor.h"
#include "atoll/testing/simulated_block_servers.h"

namespace atl::chain {

class SimulatedChain final : public SimulatedBlockServers {
 public:
  explicit SimulatedChain(uint64_t seed, ConductorOptions options = {})
      : SimulatedBlockServers(seed) {
    options.gateway = kGateway;
    options.num_layers = kLayers;
    options.chunk_tokens = 8;
    options.audit_seed = seed;
    conductor_ = std::make_unique<Conductor>(options);
  }

  bool gives_what_was_had = true;  // What began rounded can be recomputed.
  double layer_speed = 100;        // Of many tokens, as its servers say.
  /// Of texts that are asked from now on, and how many of all their positions came rounded.
  std::optional<Duration> round_after;
  int64_t num_rounded() const { return num_rounded_; }
  /// Audits of texts that began rounded.
  int64_t num_rounded_audits() const { return num_rounded_audits_; }
  Conductor& conductor() { return *conductor_; }
  std::map<Conductor::Key, std::vector<uint64_t>>& texts() { return texts_; }
  std::map<Conductor::Key, std::string>& refused() { return refused_; }
  /// Who was accused, and how many rows it had read until then.
  std::map<std::string, int64_t>& accused() { return accused_; }

  void add_server(const std::string& address, Span layers) {
    servers_[address] = {
        .layers = layers, .witness = {}, .sessions = {}, .forgotten = {}, .held = {}, .kept = {}};
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
                        .layers = server.layers,
                        .token_layers_per_s = layer_speed,
                        .num_free = server.room,
                        .num_positions = server.room});
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
    if (random(2) == 0) server.kept.clear();  // Else they are on its disk.
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
  /// Seven servers, of whose layers each has several; some have little room.
  void add_crowd() {
    add_server("a1", {0, 4});
    add_server("a2", {0, 6});
    add_server("b1", {4, 8});
    add_server("b2", {3, 9});
    add_server("c1", {8, 12});
    add_server("c2", {6, 12});
    add_server("d", {2, 10});
    for (auto& [address, server] : servers_) {
      if (random(3) == 0) server.room = 200;
    }
  }
  std::string any_server() {
    return std::next(servers_.begin(), static_cast<int64_t>(random(servers_.size())))->first;
  }
  /// To some server: it is killed, hangs, goes on or complains, each with a chance of 1 / `sides`;
  /// else it is started again.
  void mishap(uint64_t sides) {
    const std::string address = any_server();
    const Server& server = servers_.at(address);
    switch (random(sides)) {
      case 0:
        if (server.is_up) kill(address);
        if (random(2) == 0) tell();
        break;
      case 1:
        if (server.is_up) hang(address);
        break;
      case 2:
        if (server.hangs) wake(address);
        break;
      case 3:
        complain(address);
        break;
      default:
        if (!server.is_up) start(address);
    }
  }
  void mend_all() {
    for (const auto& [address, server] : servers_) {
      if (server.hangs) wake(address);
      if (!server.is_up) start(address);
    }
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
  /// Nobody wants more of it.
  void cancel(Conductor::Key key) {
    lengths_[key] = texts_.at(key).size();
    if (const int64_t count = conductor_->rest(key, now_); count > 0) kept_[key] = count;
    act();
  }
  bool is_done(Conductor::Key key) const { return texts_.at(key).size() == lengths_.at(key); }

  void run_for(milliseconds duration) {
    const Time end = now_ + duration;
    while (now_ < end) {
      const Time tick = last_tick_ + Conductor::kTick;
      if (step(std::min(tick, end))) continue;
      if (tick <= end) {
        now_ = last_tick_ = tick;
        conductor_->tick(now_);
        act();
      } else {
        now_ = end;
      }
    }
  }
  /// Texts that are over, and how much of each is kept.
  const std::map<Conductor::Key, int64_t>& kept() const { return kept_; }

 private:
  Conductor::Text text(Conductor::Key key) {
    const auto count = static_cast<int64_t>(texts_.at(key).size());
    return {.num_tokens = count + std::ssize(drafts_[key]),
            .num_guessed = std::ssize(drafts_[key]),
            .wanted_from = count - 1,
            .num_to_come = 20,
            .may_skip = true,
            .round_after = round_after};
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
  /// Named by all tokens to their end.
  std::vector<kv::Chunk> chunks(Conductor::Key key, uint32_t begin, uint32_t end) {
    std::vector<kv::Chunk> found;
    const auto tokens = std::as_bytes(std::span(texts_.at(key)));
    for (uint32_t i = begin; i < end; ++i) {
      found.push_back({.secret = sha256(tokens.first((i + 1) * kKeptTokens * sizeof(uint64_t)))});
    }
    return found;
  }
  /// Who recomputes it has to know at which level each layer of each chunk was.
  void note_rounded_audit(const Conductor::SetAside& audit) {
    ++num_rounded_audits_;
    size_t num_levels = 0;
    bool is_rounded = false;
    for (const auto& levels : audit.levels) {
      num_levels += levels.size();
      is_rounded = is_rounded || std::ranges::count(levels, 1) > 0;
    }
    EXPECT_TRUE(is_rounded);
    EXPECT_EQ(static_cast<int64_t>(num_levels), audit.num_rounded / kKeptTokens * kLayers);
    EXPECT_LT(audit.num_rounded, audit.end);
  }
  /// What each server of a chain should have seen.
  void recompute(const Conductor::Recompute& asked) {
    ASSERT_TRUE(set_aside_.contains(asked.number));
    const auto set_aside = set_aside_.extract(asked.number);
    const auto& [tokens, arrived, arrived_from] = set_aside.mapped();
    Recomputed found{.number = asked.number, .hops = {}};
    if (asked.hops.front().restored > 0 && !gives_what_was_had) {
      after(1, [this, found] {
        conductor_->recomputed(found, now_);
        act();
      });
      return;
    }
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
    for (size_t i = 0; i < asked.hops.size(); ++i) {
      Recomputed::Hop& hop = found.hops.emplace_back();
      const auto from = static_cast<size_t>(asked.hops[i].restored);
      const auto seen_of = [&](const std::vector<Fingerprint>& said) {
        return std::vector(said.begin() + static_cast<std::ptrdiff_t>(from), said.end());
      };
      hop.is_restored = from > 0;
      hop.received = errors_of(seen_of(asked.said[i].received), values, from);
      Memory memory;
      for (uint64_t& value : values) value = memory.read(asked.hops[i].layers, value);
      hop.made = errors_of(seen_of(asked.said[i].made), values, from);
    }
    found.arrived = errors_of(arrived, values, static_cast<size_t>(arrived_from));
    after(1 + static_cast<int64_t>(random(20)), [this, found] {
      conductor_->recomputed(found, now_);
      act();
    });
  }
  void heard(const std::string& address, const Message& message) override {
    if (const auto* output = std::get_if<Output>(&message)) {
      take(address, *output);
    } else if (const auto* pong = std::get_if<Pong>(&message)) {
      conductor_->pong(address, *pong, now_);
    } else if (const auto* trouble = std::get_if<Trouble>(&message)) {
      conductor_->trouble(address, *trouble, now_);
    } else if (const auto* restored = std::get_if<Restored>(&message)) {
      conductor_->restored(address, *restored, now_);
    } else {
      conductor_->testimony(address, std::get<Testimony>(message), now_);
    }
    act();
  }
  /// Tokens for a text.
  void take(const std::string& address, const Output& output) {
    const auto arrived = conductor_->output(address, output, now_);
    act();
    if (!arrived) return;
    std::vector<uint64_t>& tokens = texts_.at(arrived->key);
    std::vector<Fingerprint> came;
    const Rows& rows = output.rows;
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
        num_rounded_ += feed->num_rounded;
        work.rows.num_tokens = static_cast<uint32_t>(feed->end - work.rows.begin);
        for (int64_t i = work.rows.begin; i < feed->end; ++i) {
          const std::vector<uint64_t>& tokens = texts_.at(feed->key);
          const auto at = static_cast<size_t>(i);
          const Bytes row =
              bytes_of(at < tokens.size() ? tokens[at] : drafts_[feed->key].at(at - tokens.size()));
          work.rows.rows_TC.insert(work.rows.rows_TC.end(), row.begin(), row.end());
        }
        to_server("", feed->address, work);
      } else if (const auto* keep = std::get_if<Conductor::KeepChunks>(&action)) {
        Keep message = keep->message;
        message.chunks = chunks(keep->key, message.first, keep->end);
        to_server("", keep->address, message);
      } else if (const auto* restore = std::get_if<Conductor::RestoreChunks>(&action)) {
        Restore message = restore->message;
        message.chunks = chunks(restore->key, 0, restore->end);
        to_server("", restore->address, message);
      } else if (const auto* refuse = std::get_if<Conductor::Refuse>(&action)) {
        refused_[refuse->key] = refuse->reason;
      } else if (const auto* audit = std::get_if<Conductor::SetAside>(&action)) {
        const auto& tokens = texts_.at(audit->key);
        if (audit->num_rounded > 0) note_rounded_audit(*audit);
        set_aside_[audit->number] = {{tokens.begin(), tokens.begin() + audit->end},
                                     arrivals_[audit->key].of(audit->session),
                                     arrivals_[audit->key].begin()};
      } else if (const auto* asked = std::get_if<Conductor::Recompute>(&action)) {
        recompute(*asked);
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

  Time last_tick_{};
  std::unique_ptr<Conductor> conductor_;
  std::map<Conductor::Key, std::vector<uint64_t>> texts_;
  std::map<Conductor::Key, std::vector<uint64_t>> drafts_;  // Behind the texts' tokens.
  std::map<Conductor::Key, size_t> prompts_, lengths_;
  std::map<Conductor::Key, int64_t> kept_;
  std::map<Conductor::Key, std::string> refused_;
  int64_t num_rounded_ = 0;
  int64_t num_rounded_audits_ = 0;
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
