#pragma once
// What a simulated network is made of: its links, the two ends of its connections, what is on its
// way, and the processes, each of which is a transport. For the files of this network alone.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/net/address.h"
#include "atoll/sim/line.h"
#include "atoll/sim/sim_transport.h"

namespace atl::sim {

using net::ConnectionId;
using net::Plane;
using net::Sent;

struct SimNetwork::Link {
  LinkOptions options;
  bool is_cut = false;
  uint64_t num_cuts = 0;
  Line<Time, Duration> line;
};

struct SimNetwork::End {
  ConnectionId id = 0;
  Host* host = nullptr;  // Null once the process is gone.
  std::string local;
  std::string remote;
  Plane plane = Plane::kControl;
  const Host* relay = nullptr;  // Whom all passes that it sends, if anybody.
  std::string relay_name;
  Time relay_free{};  // All that this end sent before has left the relay by then.
  net::Way way = net::Way::kDirect;
  std::weak_ptr<End> peer;
  bool opened = false;
  bool closing = false;
  bool over = false;     // Lost was reported, or there is nobody to report to.
  bool refused = false;  // A send was kFull: Writable is owed.
  bool died = false;     // Killed: what has not left never will.
  size_t queued_bytes = 0;
  net::LinkEstimator estimator;            // Of what this end sent; bulk only.
  Time last_arrival{};                     // Of what this end sent: order within the connection.
  std::deque<Bytes> unsent;                // Sent before Opened.
  std::deque<std::shared_ptr<Item>> held;  // For this end, waiting behind a cut.

  /// The links that what it sends passes, from one host to another.
  std::vector<std::pair<std::string, std::string>> hops() const {
    if (relay == nullptr) return {{local, remote}};
    return {{local, relay_name}, {relay_name, remote}};
  }
  bool uses(const std::string& a, const std::string& b) const {
    if (relay == nullptr) return (local == a && remote == b) || (local == b && remote == a);
    const auto is_hop = [&](const std::string& one) {
      return (one == a && relay_name == b) || (one == b && relay_name == a);
    };
    return is_hop(local) || is_hop(remote);
  }
  bool sends_over(const std::string& a, const std::string& b) const {
    const auto all = hops();
    return std::ranges::find(all, std::pair(a, b)) != all.end();
  }
};

struct SimNetwork::Item {
  std::shared_ptr<End> from;
  Bytes frame;
  bool last = false;      // No frame: the connection ends here.
  bool breaks = false;    // The seed chose this frame to break the connection.
  bool departed = false;  // No longer counted in queued_bytes.
  net::LinkEstimator::Mark mark{};
};

class SimNetwork::Host final : public net::Transport {
 public:
  Host(SimNetwork& network, std::string name, Sink sink)
      : network_(network), name_(std::move(name)), sink_(std::move(sink)) {
    network_.hosts_.push_back(this);
  }

  ~Host() override {
    const auto ends = ends_;
    for (const auto& [id, end] : ends) network_.begin_close(end);
    detach();
    std::erase(network_.hosts_, this);
  }

  Result<std::string> listen(const std::string& address) override {
    const auto parsed = net::parse_address(address);
    if (!parsed) return tl::unexpected(parsed.error());
    if (dead_) return failure(name_ + " has crashed");
    const uint16_t port = parsed->port != 0 ? parsed->port : ++network_.last_port_;
    std::string bound = fmt::format("{}:{}", name_, port);
    if (!network_.listeners_.emplace(bound, this).second) {
      return failure(fmt::format("cannot listen on {}: address already in use", bound));
    }
    return bound;
  }

  ConnectionId connect(const std::string& address, Plane plane) override;
  ConnectionId meet(const net::Meeting& meeting, Plane plane) override;

  Sent send(ConnectionId connection, Bytes frame) override {
    ATOLL_CHECK(frame.size() <= net::kMaxFrameBytes);
    const auto found = ends_.find(connection);
    if (found == ends_.end() || found->second->closing) return Sent::kClosed;
    End& end = *found->second;
    if (end.queued_bytes > 0 && end.queued_bytes + frame.size() > network_.options_.queue_bytes) {
      end.refused = true;
      return Sent::kFull;
    }
    end.queued_bytes += frame.size();
    traffic_.bytes_sent += static_cast<int64_t>(frame.size());
    if (network_.tamper_) network_.tamper_(end.local, end.remote, frame);
    if (end.opened) {
      network_.transmit(found->second, std::move(frame), /*last=*/false);
    } else {
      end.unsent.push_back(std::move(frame));
    }
    return Sent::kAccepted;
  }

  void close(ConnectionId connection) override {
    const auto found = ends_.find(connection);
    if (found != ends_.end()) network_.begin_close(std::shared_ptr(found->second));
  }

  net::Traffic traffic() const override { return traffic_; }

  net::LinkEstimate estimate(ConnectionId connection) const override {
    const auto found = ends_.find(connection);
    if (found == ends_.end()) return {};
    return found->second->estimator.estimate();
  }

  const std::string& name() const { return name_; }
  const std::map<ConnectionId, std::shared_ptr<End>>& ends() const { return ends_; }

  std::shared_ptr<End> add_end(const std::string& remote, Plane plane) {
    auto end = std::make_shared<End>();
    end->id = ++network_.num_connections_;
    end->host = this;
    end->local = name_;
    end->remote = remote;
    end->plane = plane;
    ends_.emplace(end->id, end);
    return end;
  }

  void emit(net::Event event) { sink_(std::move(event)); }

  void receive(ConnectionId connection, Bytes frame) {
    traffic_.bytes_received += static_cast<int64_t>(frame.size());
    sink_(net::Received{connection, std::move(frame)});
  }

  void report_loss(ConnectionId connection, const std::string& reason) {
    ends_.erase(connection);
    sink_(net::Lost{connection, reason});
  }

  /// The process is gone: no events reach it and it can do nothing.
  void detach() {
    network_.break_circuits(*this);
    std::erase_if(network_.listeners_, [&](const auto& entry) { return entry.second == this; });
    for (const auto& [id, end] : ends_) {
      end->host = nullptr;
      end->over = true;
      end->held.clear();
    }
    ends_.clear();
  }

  void crash() {
    const auto ends = ends_;
    for (const auto& [id, end] : ends) {
      end->died = true;
      network_.break_far_side(*end, fmt::format("connection to {} reset", name_));
    }
    detach();
    dead_ = true;
  }

 private:
  SimNetwork& network_;
  std::string name_;
  Sink sink_;
  bool dead_ = false;
  net::Traffic traffic_;
  std::map<ConnectionId, std::shared_ptr<End>> ends_;
};

}  // namespace atl::sim
