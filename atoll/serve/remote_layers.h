#pragma once
// A model's layers, frozen, with the servers of a swarm: each micro-batch goes forwards through
// servers of all layers, is turned here, and goes back. Several are under way at once. What goes
// into each span is kept here, so that a server that dies, hangs or leaves is replaced by whoever
// has its layers, and nothing but its own span is done again. Answers are those of the layers in
// this process (model/frozen_layers.h), to the bit, with fp32 on the wire and processors alike.
//
// Shapes: B = rows, T = tokens per row, C = hidden size, P = the adapter's values.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/directory_post.h"
#include "atoll/chain/peer_lines.h"
#include "atoll/chain/route.h"
#include "atoll/chain/rows.h"
#include "atoll/model/model.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/inbox.h"
#include "atoll/train/learner.h"

namespace atl::serve {

struct RemoteLayersOptions {
  chain::DirectoryPostOptions post;
  std::string digest;  // The model's.
  chain::Precision precision = chain::Precision::kFp32;
  int64_t in_flight = 4;                         // Micro-batches.
  Duration patience = std::chrono::minutes(10);  // For servers of all layers.
  Duration silence = std::chrono::seconds(20);   // Of a server that is asked.
  Duration avoidance = std::chrono::seconds(5);  // Of a server that was lost.
  std::function<void(const std::string&)> log = [](const std::string&) {};
  /// Its user ends it: then nobody is awaited.
  std::function<bool()> stops = [] { return false; };
};

/// Used by one thread, which speaks with the servers while it is called.
class RemoteLayers final : public train::FrozenLayers {
 public:
  /// Of the model its settings are used. The clock outlives it.
  RemoteLayers(const weights::ModelConfig& model, RemoteLayersOptions options,
               const net::TransportFactory& make_transport, const Clock& clock);
  ~RemoteLayers() override;

  /// Throw InputError: no servers have the layers for too long, or all fail again and again; what a
  /// server makes is not finite, or damaged; a micro-batch or an adapter is more than servers take.
  /// Interrupted, where its user ends it while layers are with nobody: what it was asked for is
  /// given up, and no gradient was added to.
  std::vector<at::Tensor> learn(std::span<const at::Tensor> inputs_BTC,
                                const model::Adapter& adapter, const Turn& turn) override;
  at::Tensor read(const at::Tensor& x_BTC, const model::Adapter& adapter) override;

  /// Servers that were lost with something to do.
  int64_t num_lost() const { return num_lost_; }

 private:
  struct Asked {
    uint64_t number = 0;  // Of the lesson.
    std::string address;
    chain::Span layers;
    bool goes_back = false;
    at::Tensor made_BTC;
    int64_t num_rows = 0;  // That have come.
    int64_t num_values = 0;

    int64_t bytes() const;  // That the server holds for it.
  };
  /// A micro-batch on its way.
  struct Trip {
    size_t index = 0;
    bool goes_back = false;
    int32_t at = 0;  // The layer that reads next; on its way back, behind the one that is next.
    std::map<int32_t, at::Tensor> inputs_BTC;  // What spans that begin there have read.
    at::Tensor dy_BTC;
    at::Tensor gradients_P;
    std::optional<Asked> asked;
    std::optional<Time> fails_since;  // Without an answer since then.
    bool is_over = false;
  };
  struct Server {
    net::ConnectionId line = 0;
    Time heard{};
    Time answered{};  // A lesson, or some of it was taken; or it was asked.
    Time pinged{};
    std::set<chain::Span> adapted;  // Spans whose adapter is there, as it is now.
    int64_t num_forgotten = 0;      // How often it was not.
  };

  void drive(std::vector<Trip>& trips, const model::Adapter& adapter, const Turn* turn);
  void note_adapter(const model::Adapter& adapter);
  void hear_all(std::vector<Trip>& trips);
  bool go_on(Trip& trip, const std::vector<Trip>& trips, const Turn* turn);
  void turn_back(Trip& trip, const Turn& turn);
  std::optional<chain::Hop> next_hop(int32_t begin, int32_t end, const Trip& trip);
  std::vector<chain::Candidate> candidates() const;
  static bool is_busy(const std::string& address, int64_t bytes, const std::vector<Trip>& trips);
  void ask(Trip& trip, const chain::Hop& hop, bool goes_back, const std::vector<Trip>& trips);
  void send_adapter(Server& server, chain::Span layers);
  Server& call(const std::string& address);
  void handle(const net::Event& event, std::vector<Trip>& trips);
  void hear(const std::string& address, const chain::Message& message, std::vector<Trip>& trips);
  void hear_trouble(const std::string& address, const chain::Trouble& trouble,
                    std::vector<Trip>& trips);
  void hear_rows(Asked& asked, const chain::LessonRows& rows) const;
  void hear_values(Trip& trip, const chain::LessonValues& values) const;
  void take_answer(Trip& trip);
  std::pair<int64_t, int64_t> places_of(chain::Span layers) const;
  std::string objection_to(const std::string& address, const net::Opened& opened) const;
  void lose(const std::string& address, const std::string& reason, std::vector<Trip>& trips);
  void note_failure(Trip& trip, const std::string& address, const std::string& reason);
  void look_after_servers(Time now, std::vector<Trip>& trips);
  void wait_for_servers(bool has_route, Time now);
  static Trip* asked_by(uint64_t number, std::vector<Trip>& trips);

  static constexpr uint64_t kAdapter = 1;  // Its number: there is one.

  const weights::ModelConfig model_;
  const RemoteLayersOptions options_;
  const Clock& clock_;
  const uint64_t gateway_;
  swarm::Inbox<net::Event> inbox_;
  std::unique_ptr<net::Transport> transport_;
  chain::PeerLines lines_;
  chain::DirectoryPost post_;
  std::map<std::string, Server> servers_;
  std::map<net::ConnectionId, std::string> addresses_;
  std::map<std::string, Time> avoided_;  // Until then.
  std::vector<chain::Hop> route_;        // The one that is used, while all of it is there.
  const model::Adapter* adapter_ = nullptr;
  std::string failure_;              // Why it is of no use to go on.
  uint64_t version_ = 0;             // Of the adapter.
  at::Tensor sent_P_;                // Its values then.
  uint64_t num_lessons_ = kAdapter;  // Their numbers are others than the adapter's.
  int64_t num_lost_ = 0;
  std::optional<Time> waits_since_;  // For servers.
  Time told_{};
};

}  // namespace atl::serve
