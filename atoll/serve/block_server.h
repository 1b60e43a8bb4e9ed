#pragma once
// A server of some of a model's layers: a thread that reads (BlockEngine), and one that speaks with
// gateways, other servers and the coordinator. It may be killed at any time.
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
#include "atoll/base/event.h"
#include "atoll/base/mutex.h"
#include "atoll/chain/directory_post.h"
#include "atoll/chain/peer_lines.h"
#include "atoll/identity/peer.h"
#include "atoll/model/model.h"
#include "atoll/net/transport.h"
#include "atoll/serve/block_engine.h"
#include "atoll/serve/block_trainer.h"
#include "atoll/serve/kv_desk.h"
#include "atoll/serve/part_lender.h"
#include "atoll/swarm/inbox.h"

namespace atl::serve {

struct BlockServerOptions {
  chain::DirectoryPostOptions post;
  /// What it says of itself: with its name, address and model; layers where its user named them.
  chain::Lease lease;
  BlockEngineOptions engine;
  BlockTrainerOptions trainer;
  /// The model with these layers alone; null where `stops` said so while it took its time. Throws
  /// InputError. Called by the thread that reads.
  std::function<std::unique_ptr<model::Model>(model::LayerRange,
                                              const std::function<bool()>& stops)>
      load;
  PartLenderOptions lending;          // To servers that lack the model's files.
  std::optional<KvDeskOptions> kept;  // Keys and values of texts that others may go on with.
  std::function<void(const std::string&)> log;
  std::function<void()> joined = [] {};  // Once: the coordinator has taken its lease.
  /// How long sessions get to go elsewhere when other layers are to be served.
  Duration leave_patience = std::chrono::seconds(5);
  /// When none are, those that cannot go end here: so long in all, and so long without anything to
  /// read, which a server before this one may take to read a text anew.
  Duration drain_patience = std::chrono::minutes(10);
  Duration drain_silence = std::chrono::seconds(30);
};

/// How quickly a model reads here: layers a second, of one token alone and of many together, each.
struct ReadingSpeed {
  double layers_per_s = 0;
  double token_layers_per_s = 0;
};
ReadingSpeed measure_speed(const model::Model& model, const Clock& clock);

class BlockServer {
 public:
  /// `transport` listens at the lease's address already and gives its events to inbox(). Both
  /// outlive it, and so does the clock.
  BlockServer(BlockServerOptions options, net::Transport& transport,
              swarm::Inbox<net::Event>& inbox, const Clock& clock);
  ~BlockServer();
  BlockServer(const BlockServer&) = delete;
  BlockServer& operator=(const BlockServer&) = delete;

  /// Serves until `stops` says so; then its sessions go elsewhere, or end. Throws InputError where
  /// the layers cannot be loaded.
  void run(const std::function<bool()>& stops);

 private:
  struct Caller {
    uint64_t gateway = 0;  // 0: another server.
    net::Plane plane = net::Plane::kPeer;
    bool has_greeted = false;
    std::optional<identity::PeerId> peer;  // By its certificate.
  };
  struct GatewayLines {
    explicit GatewayLines(std::string name_in) : name(std::move(name_in)) {}
    std::string name;  // By its certificate; empty in the clear.
    net::ConnectionId control = 0;
    net::ConnectionId bulk = 0;
  };
  struct Loaded {
    ReadingSpeed speed;
    int64_t num_positions = 0;
  };

  // The thread that speaks.
  void handle(const net::Event& event);
  void greet(net::ConnectionId line, Caller& caller, const chain::Greet& message);
  bool hear_of_kept(net::ConnectionId line, const Caller& caller, chain::Message& message);
  void lend(net::ConnectionId line, const Caller& caller, chain::Want want);
  void hear(net::ConnectionId line, Caller& caller, chain::Message message);
  void lose(net::ConnectionId line, const std::string& reason);
  void take_place(chain::Span layers);
  void look_at_reader();
  void ping_neighbours(Time now);
  void hear_pong(net::ConnectionId line);
  void leave(const std::string& why, Duration longest, Duration silence);
  void offer(Time now);
  void learn_servers();
  chain::Pong pong(uint64_t number) const;

  // The thread that reads.
  void read(chain::Span layers);
  void read_on(BlockEngine& engine, BlockTrainer& trainer);
  void send(const chain::Message& message);
  void hear_keeper(net::ConnectionId line, chain::Message& message);
  void send_to(const std::string& address, const chain::Message& message);
  void take_restored(const chain::Restore& order, chain::Span pages_layers, FoundChunks found);
  std::optional<net::ConnectionId> line_for(const chain::Message& message);
  std::set<uint64_t> full_gateways() ATOLL_REQUIRES(mutex_);
  std::optional<net::ConnectionId> neighbour(const std::string& address) ATOLL_REQUIRES(mutex_);
  std::optional<net::ConnectionId> line_to(std::map<std::string, net::ConnectionId>& lines,
                                           const std::string& address) ATOLL_REQUIRES(mutex_);

  const BlockServerOptions options_;
  swarm::Inbox<net::Event>& inbox_;
  const Clock& clock_;
  chain::PeerLines lines_;
  chain::DirectoryPost post_;
  chain::Lease lease_;
  std::map<net::ConnectionId, Caller> callers_;
  uint64_t servers_version_ = 0;
  /// Neighbours that were asked, and when.
  std::map<net::ConnectionId, std::pair<std::string, Time>> pings_;

  mutable Mutex mutex_;
  Condition arrived_;
  std::vector<std::function<void(BlockEngine&)>> jobs_ ATOLL_GUARDED_BY(mutex_);
  std::vector<std::function<void(BlockTrainer&)>> lessons_ ATOLL_GUARDED_BY(mutex_);
  size_t jobs_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;  // Of their rows.
  size_t lessons_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool stops_reading_ ATOLL_GUARDED_BY(mutex_) = false;
  std::optional<Loaded> loaded_ ATOLL_GUARDED_BY(mutex_);  // News for the thread that speaks.
  std::string failure_ ATOLL_GUARDED_BY(mutex_);
  std::map<uint64_t, GatewayLines> gateways_ ATOLL_GUARDED_BY(mutex_);
  std::map<std::string, net::ConnectionId> neighbours_ ATOLL_GUARDED_BY(mutex_);
  /// Lines for what is kept: their trouble is no text's.
  std::map<std::string, net::ConnectionId> keepers_ ATOLL_GUARDED_BY(mutex_);
  /// Servers of this model, as the coordinator knows them: nobody else is called, whoever asks.
  std::set<std::string> known_ ATOLL_GUARDED_BY(mutex_);
  // What the reading thread says of itself.
  std::atomic<int64_t> pass_began_ = 0;  // Of the clock; 0: there is no pass.
  std::atomic<uint64_t> num_passes_ = 0;
  std::atomic<int64_t> num_free_ = 0;
  std::atomic<int64_t> num_sessions_ = 0;

  PartLender lender_;
  std::optional<KvDesk> desk_;
  std::thread reader_;
};

}  // namespace atl::serve
