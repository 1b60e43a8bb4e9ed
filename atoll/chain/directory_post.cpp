#include "atoll/chain/directory_post.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/name.h"
#include "atoll/chain/events.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/wire.h"

namespace atl::chain {

DirectoryPost::DirectoryPost(DirectoryPostOptions options, net::Transport& transport)
    : options_(std::move(options)), transport_(transport) {}

void DirectoryPost::tick(Time now) {
  if (now < due_) return;
  if (connection_ == 0) return call(now);
  if (!is_connected_) {  // The call takes long.
    due_ = Time::max();
    return miss("the call takes long", now);
  }
  if (now - heard_ >= kPatience) return hang_up("it says nothing any more", now);
  beat(now);
}

void DirectoryPost::call(Time now) {
  due_ = Time::max();
  if (!lease_ && !options_.watches) return;
  if (!first_call_) first_call_ = now;
  if (!has_joined_ && now < *first_call_ + kUnanswered) due_ = *first_call_ + kUnanswered;
  connection_ =
      transport_.connect_as(options_.authority, options_.coordinator, net::Plane::kControl);
  heard_ = now;
}

void DirectoryPost::beat(Time now) {
  due_ = now + kLeaseRenewal;
  if (lease_) say(Offer{*lease_});
  if (num_pings_ == 0) {
    if (options_.watches) say(Watch{*options_.watches});
    for (const Report& report : reports_) say(report);
  }
  say(Ping{++num_pings_});
}

void DirectoryPost::say(const Message& message) {
  // What finds no room is said again, or the connection is about to be lost.
  std::ignore = transport_.send(connection_, encode(message));
}

void DirectoryPost::handle(const net::Event& event, Time now) {
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    if (!owns(opened->connection)) return;
    is_connected_ = true;
    heard_ = now;
    num_pings_ = 0;
    beat(now);
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    if (!owns(received->connection)) return;
    heard_ = now;
    try {
      hear(received->frame);
    } catch (const InputError& error) {
      hang_up(error.what(), now);
    }
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    if (owns(lost->connection)) lose(lost->reason, now);
  }
}

void DirectoryPost::hear(const Bytes& frame) {
  Message message = decode(frame);
  if (auto* servers = std::get_if<Servers>(&message)) {
    servers_ = std::move(servers->leases);
    servers_version_ += 1;
  } else if (const auto* place = std::get_if<Place>(&message)) {
    const std::string fault = lease_ ? fault_of(place->layers, *lease_) : "no lease was offered";
    if (!fault.empty()) throw InputError("it was to serve " + fault);
    place_ = place->layers;
  } else if (const auto* revoked = std::get_if<Revoked>(&message)) {
    return options_.on_revocations(revoked->signed_list);  // That alone admits nobody.
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    const std::string reason = printable(refused->reason);
    if (refused_ != reason) tell(DirectoryRefused{reason});
    refused_ = reason;
    return;
  } else if (!std::holds_alternative<Pong>(message)) {
    throw InputError("a " + kind_name(message) + " of a directory");
  }
  if (refused_) refused_.reset();
  pause_ = kFirstPause;
  has_joined_ = true;
  if (std::exchange(missed_, std::nullopt)) tell(DirectoryReached{options_.coordinator});
}

void DirectoryPost::hang_up(const std::string& reason, Time now) {
  transport_.close(connection_);
  lose(reason, now);
}

void DirectoryPost::lose(const std::string& reason, Time now) {
  connection_ = 0;
  is_connected_ = false;
  if (refused_) {
    pause_ = kLongestPause;  // It is told once, why.
  } else {
    miss(reason, now);
  }
  due_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

/// Who has never joined may have come a moment too early, or to the wrong place.
void DirectoryPost::miss(const std::string& reason, Time now) {
  if (!has_joined_ && now < *first_call_ + kUnanswered) return;
  // Why it cannot be reached may be another thing than why it was lost: it has revoked this member.
  if (missed_ && (missed_->reason == reason || now < missed_->told + kToldAgain)) return;
  missed_ = {.reason = reason, .told = now};
  if (has_joined_) {
    tell(DirectoryMissed{reason});
  } else {
    tell(DirectoryUnanswered{.coordinator = options_.coordinator, .reason = reason});
  }
}

void DirectoryPost::tell(const Event& event) const {
  if (options_.tell) options_.tell(event);
}

void DirectoryPost::set_lease(Lease lease, Time now) {
  const bool is_first = !lease_;
  const bool is_news = is_first || differ_for_routes(*lease_, lease);
  lease_ = std::move(lease);
  if (is_connected_ && is_news) say(Offer{*lease_});
  if (connection_ == 0 && is_first) due_ = std::min(due_, now);
}

void DirectoryPost::report(const std::string& server, const std::string& reason) {
  reports_.push_back({.server = server, .reason = reason});
  if (is_connected_) say(reports_.back());
}

std::vector<Lease> DirectoryPost::servers_of(const std::string& digest) const {
  std::vector<Lease> servers;
  std::ranges::copy_if(servers_, std::back_inserter(servers),
                       [&](const Lease& lease) { return lease.digest == digest; });
  return servers;
}

std::optional<Span> DirectoryPost::take_place() { return std::exchange(place_, std::nullopt); }

}  // namespace atl::chain
