#pragma once
// A Generator of a model whose layers are on other machines: a thread that embeds tokens, sends
// them through chains of servers (chain/conductor.h decides which) and draws from what comes back,
// or has that done by the first and the last server of each chain.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/conductor.h"
#include "atoll/chain/directory_post.h"
#include "atoll/chain/peer_lines.h"
#include "atoll/chain/rows.h"
#include "atoll/model/model.h"
#include "atoll/net/transport.h"
#include "atoll/serve/auditor.h"
#include "atoll/serve/draft_model.h"
#include "atoll/serve/guessed_text.h"
#include "atoll/serve/kv_desk.h"
#include "atoll/serve/text_desk.h"
#include "atoll/swarm/inbox.h"

namespace atl::serve {

struct ChainOptions {
  chain::DirectoryPostOptions post;
  std::string digest;  // The model's.
  /// The model here has no weights: the servers embed, and draw.
  bool needs_head = false;
  chain::Precision precision = chain::Precision::kFp32;
  int64_t max_sessions = 64;
  Duration memory_patience = std::chrono::minutes(2);  // For room for a text's keys and values.
  /// Guesses under way at most, all texts together. 0: none.
  int64_t max_drafts = 16;
  /// Makes guesses where the text itself gives none; null: nobody does. It has the model's
  /// tokenizer and at least as many ids, outlives the generator, and is used by nobody else.
  const model::Model* draft = nullptr;
  int64_t draft_kv_bytes = int64_t{256} << 20;  // For its keys and values.
  /// Of what servers compute, so large a part is recomputed with the whole model, which load()
  /// maps; without that nothing is.
  double audit_fraction = 0.125;
  Auditor::Load load = {};
  /// How servers round keys and values; null: texts that begin rounded are not audited.
  std::shared_ptr<const Rounding> rounding = {};
  /// Servers keep keys and values of texts' chunks, under names that follow from this (kv/chunk.h);
  /// `new_kv_secret` makes another one where they are to be found no more.
  std::optional<Digest> kv_secret = {};
  std::function<Digest()> new_kv_secret = {};
  /// Whether requests may have what was kept rounded (decoding::GenerationRequest::round_after),
  /// and after how many seconds those that say nothing of it do; nothing: never.
  bool may_round = true;
  std::optional<double> round_after = {};
  /// By which texts may ask to be read (GenerationRequest::adapter): of all the model's layers.
  std::vector<std::shared_ptr<const model::Adapter>> adapters = {};
};

class ChainGenerator final : public TextDesk {
 public:
  /// The model is one without layers, or weights; nobody else uses it while this one lives. The
  /// clock outlives it. Throws UsageError where the budget of the model that guesses holds no page.
  ChainGenerator(const model::Model& model, ChainOptions options,
                 const net::TransportFactory& make_transport, const Clock& clock);
  /// What is under way is given up, unheard.
  ~ChainGenerator() override;
  ChainGenerator(const ChainGenerator&) = delete;
  ChainGenerator& operator=(const ChainGenerator&) = delete;

  /// By what the coordinator said last.
  bool is_served() const override { return is_served_; }
  bool may_round() const override { return options_.may_round && options_.kv_secret.has_value(); }

 private:
  struct Lines {
    net::ConnectionId control = 0;
    net::ConnectionId bulk = 0;
    bool control_greeted = false;
    bool bulk_greeted = false;
    /// Adapters, and of which layers, that are on their way; whether they are wanted once more.
    std::map<std::pair<uint64_t, chain::Span>, bool> adapters = {};
  };
  /// Rows for a text, the first of its position `begin`.
  struct Found {
    Id id = 0;
    int64_t begin = 0;
    uint64_t session = 0;
    chain::Rows rows;
  };
  /// What an audit is to know of a text that is over.
  struct Over {
    uint64_t tenant = 0;
    uint64_t adapter = 0;
    std::vector<int64_t> tokens;
    chain::Arrivals arrivals;
  };
  struct Reading {
    GuessedText text;
    chain::Arrivals arrivals;
    bool is_private = false;  // Nothing of it is for others.
  };

  /// What has come for a position of the text; nothing where it cannot be believed.
  using MakeOutcome = std::function<std::optional<decoding::Outcome>(int64_t position)>;

  void wake() override ATOLL_REQUIRES(mutex_) { inbox_.push(std::nullopt); }
  void run();
  void go_on();
  void refuse(Id id, const std::string& reason, bool is_full = false);
  void refuse_all(const std::string& reason);
  void handle(const net::Event& event, Time now);
  void hear(const std::string& address, net::ConnectionId line, const chain::Message& message,
            Time now);
  std::string objection_to(const std::string& address, const net::Opened& opened) const;
  void lose(const std::string& address, const std::string& reason, Time now);
  void take_news(Time now);
  void learn_servers(Time now);
  void give();
  std::vector<Found> decoded(std::vector<float>& values_WC);
  void give_outcomes();
  bool take(Reading& reading, int64_t begin, int64_t count, const MakeOutcome& outcome_at);
  void change(Reading& reading, int64_t num_same);
  int64_t most_guesses() const;
  std::optional<GuessedText::Model> draft_model() const;
  void guess();
  void act();
  void set_aside(const chain::Conductor::SetAside& audit);
  void accuse(const chain::Conductor::Accuse& accused);
  void send_adapter(const std::string& address, const chain::Unadapted& wanted);
  void watch_adapters(Time now);
  void call(const std::string& address);
  std::vector<kv::Chunk> chunks_of(const Sequence& sequence, uint32_t begin, uint32_t end) const;
  std::unique_ptr<KvDesk> audit_desk();
  void ask_for_audits();
  void name_chunks(const Digest& secret);
  void tell_of_chunks(chain::Conductor::KeepChunks keep);
  void tell_of_chunks(chain::Conductor::RestoreChunks restore);
  void feed(const chain::Conductor::Feed& feed);
  chain::Rows embedded(std::span<const int64_t> tokens, int64_t begin) const;
  std::pair<Id, int64_t> longest_shared(const Sequence& sequence) const;
  void purge_kept_of(uint64_t tenant);
  void let_go(Id id);
  void rest(Id id);
  void put_away(Id id, int64_t num_kept);
  std::optional<Duration> round_after(const Sequence& sequence) const;
  chain::Conductor::Text text_of(const GuessedText& text) const;
  void report();

  const model::Model& model_;
  const ChainOptions options_;
  const Clock& clock_;
  const uint64_t gateway_;
  swarm::Inbox<std::optional<net::Event>> inbox_;  // Nothing: wake().
  std::unique_ptr<net::Transport> transport_;
  chain::PeerLines lines_;
  chain::DirectoryPost post_;
  chain::Conductor conductor_;
  const std::shared_ptr<model::KvPool> no_layers_;
  const double kv_bytes_per_layer_;          // Of a position.
  std::vector<kv::ChunkNames> chunk_names_;  // By adapter; none where nothing is kept.
  std::map<Id, Reading> readings_;
  const std::unique_ptr<DraftModel> draft_;  // None: null.
  std::set<Id> to_guess_;                    // Of which the draft model may have something to read.
  double guess_s_ = 0;                       // What a guess of its takes.
  std::map<std::string, Lines> servers_;
  std::map<net::ConnectionId, std::string> addresses_;
  std::map<Id, Over> over_;  // Until act().
  struct Resting {
    uint64_t tenant = 0;
    uint64_t adapter = 0;
    std::vector<int64_t> tokens;
  };
  std::map<Id, Resting> resting_;  // Texts that are over, and are kept by servers.
  std::vector<Found> found_;
  chain::Witness witness_;
  decoding::GeneratorStatus counts_;
  uint64_t servers_version_ = 0;
  double servers_kv_bytes_ = 0;  // By their leases; in use, of all there are.
  double servers_kv_capacity_bytes_ = 0;
  Time next_tick_{};
  std::atomic<bool> stops_ = false;
  std::atomic<bool> is_served_ = false;
  /// What audits ask servers, which the generator's thread says.
  std::vector<std::pair<std::string, chain::Message>> to_ask_ ATOLL_GUARDED_BY(mutex_);
  const std::unique_ptr<KvDesk> audit_desk_;  // Null: without a profile.
  Auditor auditor_;
  std::thread thread_;
};

}  // namespace atl::serve
