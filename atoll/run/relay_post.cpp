#include "atoll/run/relay_post.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/name.h"
#include "atoll/run/events.h"
#include "atoll/swarm/version.h"
#include "atoll/swarm/wire.h"

namespace atl::run {

RelayPost::RelayPost(RelayPostOptions options, net::Transport& transport)
    : options_(std::move(options)), transport_(transport) {}

void RelayPost::tick(Time now) {
  if (now < due_ || over_ || refused_) return;
  due_ = Time::max();
  connection_ =
      transport_.connect_as(options_.authority, options_.coordinator, net::Plane::kControl);
  const swarm::RelayHello hello{
      .version = swarm::program_version(), .name = options_.name, .address = options_.address};
  if (transport_.send(connection_, swarm::encode(hello)) != net::Sent::kAccepted) {
    lose("the connection was closed at once", now);
  }
}

void RelayPost::handle(const net::Event& event, Time now) {
  if (const auto* received = std::get_if<net::Received>(&event)) {
    if (received->connection != connection_) return;
    try {
      hear(received->frame);
    } catch (const InputError& error) {
      transport_.close(std::exchange(connection_, 0));
      lose(error.what(), now);
    }
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    if (lost->connection == connection_) lose(lost->reason, now);
  }
}

void RelayPost::hear(const Bytes& frame) {
  const swarm::Message message = swarm::decode(frame);
  if (const auto* view = std::get_if<swarm::View>(&message)) {
    pause_ = kFirstPause;
    if (!view->revocations.empty()) options_.on_revocations(view->revocations);
    if (!std::exchange(is_taken_, true)) {
      options_.tell(RelayTaken{.coordinator = options_.coordinator, .address = options_.address});
    }
    is_missed_ = false;
  } else if (const auto* ended = std::get_if<swarm::RunEnded>(&message)) {
    over_ = printable(ended->reason);
  } else if (const auto* refused = std::get_if<swarm::Refused>(&message)) {
    refused_ = printable(refused->reason);
  }
}

void RelayPost::lose(const std::string& reason, Time now) {
  if (over_ || refused_) return;
  is_taken_ = false;
  if (!std::exchange(is_missed_, true)) options_.tell(CoordinatorMissed{reason});
  due_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace atl::run
