#pragma once
// Sessions of many gateways at one server of some of a model's layers, read together pass after
// pass: the newest row of each, and beside them a part of the texts that are still to be read. What
// is made goes on to each session's next server. chain/server_session.h keeps a session's books.
//
// On the CPU every row has the bits that it would have alone, whatever is read beside it. Owned by
// one thread.
//
// Shapes: T = tokens of a pass, C = hidden size.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/fingerprint.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/server_session.h"
#include "atoll/model/model.h"
#include "atoll/serve/adapter_shelf.h"
#include "atoll/serve/head.h"
#include "atoll/serve/kv_desk.h"

namespace atl::serve {

struct BlockEngineOptions {
  int64_t kv_bytes = int64_t{1} << 30;        // For keys and values.
  int64_t kept_bytes = int64_t{256} << 20;    // Of what was sent on, for servers that take a place.
  int64_t prompt_tokens = 256;                // Of texts that are read, in a pass.
  int64_t unread_bytes = int64_t{256} << 20;  // Of rows that have come and wait.
  int64_t max_sessions = 1024;
  bool has_head = false;      // The model has embedding, final norm and head, for gateways without.
  int64_t max_resting = 256;  // Texts that are over.
  Duration idle_patience = std::chrono::minutes(2);  // For a session that nobody goes on with.
  AdapterShelf* adapters = nullptr;  // Outlives the engine. Null: texts by an adapter are refused.
};

class BlockEngine {
 public:
  /// The model outlives it; its layers are those that it was loaded with. Throws UsageError where
  /// the budget holds no page.
  BlockEngine(const model::Model& model, const BlockEngineOptions& options);

  /// Of messages.h: Work, Reroute, Forget, Rest, Keep or Testify.
  void hear(chain::Message message, Time now);
  /// What was found of it, in pages of these layers; its gateway is told how much that is.
  void restore(const chain::Restore& order, chain::Span pages_layers, const FoundChunks& found,
               Time now);
  /// The gateway is gone, and nobody else wants its sessions.
  void forget_gateway(uint64_t gateway);
  /// No server can be reached at that address: sessions that go on there say so.
  void lose_neighbour(const std::string& address);
  /// Sessions are told that they have to go elsewhere.
  void leave(const std::string& reason);

  bool is_idle() const;
  /// Texts that nobody goes on with end; what was asked for in vain is asked for again.
  void tick(Time now);
  /// One pass.
  void read(Time now);
  /// What is to be sent: Work to its first hop's address, all else to its session's gateway.
  std::vector<chain::Message> take_sent() { return std::exchange(sent_, {}); }
  /// What is to be kept.
  std::vector<KeptPages> take_kept() { return std::exchange(kept_, {}); }

  int64_t num_sessions() const;   // Those that rest do not count.
  int64_t num_free() const;       // Positions for which there is memory, or would be at once,
  int64_t num_positions() const;  // of so many.
  uint64_t num_passes() const { return num_passes_; }

 private:
  struct Text {
    chain::ServerSession session;
    model::KvCache cache;
    Time heard;
    /// As its first rows said, while they begin at position 0 all the same: it takes the place of
    /// who is gone.
    uint64_t begins_as = 0;
    int64_t num_shared = 0;
    /// Null where it has none, or waits for it.
    std::shared_ptr<const model::Adapter> adapter = {};
  };
  using Texts = std::list<Text>;  // The oldest first.
  /// A text in a pass.
  struct Reading {
    Text* text = nullptr;
    int64_t num_tokens = 0;
    std::vector<decoding::Order> orders = {};  // Of each row; none: its gateway has a head.
    std::vector<Followed> followed = {};       // What came of them, where the head is here.

    size_t count() const { return static_cast<size_t>(num_tokens); }
    bool draws() const { return !orders.empty() && text->session.hops().size() == 1; }
  };

  Texts::iterator find(const chain::SessionId& id);
  bool has_head_at(int32_t layer) const;
  std::optional<std::pair<chain::Fault, std::string>> objection_to(const chain::Work& work) const;
  Texts::iterator open(const chain::Work& work, Time now);
  void work(chain::Work message, Time now);
  void reroute(const chain::Reroute& message, Time now);
  void keep(const chain::Keep& message);
  void complain(const chain::ServerSession& session, chain::Fault fault, std::string reason);
  Texts::iterator end(Texts::iterator text, chain::Fault fault, std::string reason);
  bool end_rest();
  std::vector<int64_t> prepare(Time now);
  bool waits_for_beginning(Text& text);
  bool lacks_adapter(const Text& text) const;
  bool waits_for_adapter(Text& text, Time now);
  void pass(chain::Span layers, std::span<Text* const> texts, std::span<const int64_t> counts);
  std::vector<decoding::Order> gather(Text& text, int64_t count,
                                      std::vector<float>& values_TC) const;
  void follow(const at::Tensor& made_TC, std::span<Reading> readings) const;
  chain::Rows encoded(Reading& reading, std::span<const float> made_TC) const;
  void limit_kept();

  const model::Model& model_;
  const BlockEngineOptions options_;
  const std::shared_ptr<model::KvPool> pool_;
  const int64_t context_;    // Positions in all.
  const int64_t pass_rows_;  // Of one session.
  Texts texts_;
  chain::ForgottenSessions forgotten_;
  chain::Witness witness_;
  std::vector<chain::Message> sent_;
  std::vector<KeptPages> kept_;
  /// Adapters of these layers that gateways were asked for, and when.
  std::map<std::pair<chain::SessionId, chain::Span>, Time> asked_;
  uint64_t num_passes_ = 0;
};

}  // namespace atl::serve
