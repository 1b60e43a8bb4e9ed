#pragma once
// For tests: a transport that keeps what is sent, and takes as much as the test lets it.
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "atoll/net/transport.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {

class SentFrames final : public net::Transport {
 public:
  Result<std::string> listen(const std::string& address) override { return address; }
  net::ConnectionId connect(const std::string& address, net::Plane) override {
    addresses.push_back(address);
    return ++last_;
  }
  net::ConnectionId connect_as(const std::string& run, const std::string& address,
                               net::Plane plane) override {
    runs.push_back(run);
    return connect(address, plane);
  }
  net::ConnectionId meet(const net::Meeting& meeting, net::Plane) override {
    meetings[++last_] = meeting;
    return last_;
  }
  net::Sent send(net::ConnectionId connection, Bytes frame) override {
    if (is_closed) return net::Sent::kClosed;
    if (const auto found = room.find(connection); found != room.end()) {
      if (found->second < frame.size()) return net::Sent::kFull;
      found->second -= frame.size();
    }
    sent[connection].push_back(swarm::decode(frame));
    return net::Sent::kAccepted;
  }
  void close(net::ConnectionId connection) override { closed.push_back(connection); }
  net::Traffic traffic() const override { return {}; }

  std::map<net::ConnectionId, std::vector<swarm::Message>> sent;
  std::map<net::ConnectionId, size_t> room;  // In bytes; no entry: without end.
  std::vector<std::string> addresses;        // That were dialled,
  std::vector<std::string> runs;             // some of them as a member of these.
  std::map<net::ConnectionId, net::Meeting> meetings;
  std::vector<net::ConnectionId> closed;
  bool is_closed = false;  // So is every connection, at once.

 private:
  net::ConnectionId last_ = 0;
};

/// What was sent of a kind.
template <typename Kind>
std::vector<Kind> said(const SentFrames& transport, net::ConnectionId connection) {
  std::vector<Kind> out;
  const auto found = transport.sent.find(connection);
  if (found == transport.sent.end()) return out;
  for (const swarm::Message& message : found->second) {
    if (const auto* kind = std::get_if<Kind>(&message)) out.push_back(*kind);
  }
  return out;
}

}  // namespace atl::collective
