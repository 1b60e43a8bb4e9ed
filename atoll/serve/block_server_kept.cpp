// A block server's part in keeping keys and values: what others say of them, and what its desk
// says.
#include <algorithm>
#include <utility>

#include "atoll/serve/block_server.h"

namespace atl::serve {

/// Of keys and values that are kept: from a server, or from a gateway, whose texts are to be
/// restored or purged, and which asks for what was restored when it audits.
bool BlockServer::hear_of_kept(net::ConnectionId line, const Caller& caller,
                               chain::Message& message) {
  if (auto* restore = std::get_if<chain::Restore>(&message)) {
    if (caller.gateway == 0 || restore->session.gateway != caller.gateway) return false;
    if (desk_ && lease_.layers.holds(restore->layers)) {
      desk_->restore(std::move(*restore), lease_.layers);
    } else {
      lines_.send(line, chain::Restored{.session = restore->session, .epoch = restore->epoch});
    }
    return true;
  }
  if (const auto* purge = std::get_if<chain::Purge>(&message)) {
    if (caller.gateway == 0) return false;
    if (desk_) desk_->purge(purge->group);
    return true;
  }
  if (const auto* question = std::get_if<chain::Fetch>(&message)) {
    chain::Fetched none{.number = question->number, .blobs = {}};
    none.blobs.resize(question->names.size());
    lines_.send(line, desk_ ? desk_->fetch(*question) : none);
    return true;
  }
  if (caller.gateway != 0) return false;
  if (auto* blobs = std::get_if<chain::Store>(&message)) {
    if (desk_) lines_.send(line, desk_->store(std::move(*blobs)));
    return true;
  }
  return false;
}

/// What another server says that was asked for what it keeps, or to keep something.
void BlockServer::hear_keeper(net::ConnectionId line, chain::Message& message) {
  if (const auto* stored = std::get_if<chain::Stored>(&message)) return desk_->hear(*stored);
  auto* found = std::get_if<chain::Fetched>(&message);
  if (found == nullptr) return;
  std::string address;
  {
    const MutexLock lock(mutex_);
    const auto keeper =
        std::ranges::find_if(keepers_, [&](const auto& entry) { return entry.second == line; });
    if (keeper == keepers_.end()) return;
    address = keeper->first;
  }
  desk_->hear(address, std::move(*found));
}

void BlockServer::send_to(const std::string& address, const chain::Message& message) {
  std::optional<net::ConnectionId> line;
  {
    const MutexLock lock(mutex_);
    line = line_to(keepers_, address);
  }
  if (line) lines_.send(*line, message);
}

void BlockServer::take_restored(const chain::Restore& order, chain::Span pages_layers,
                                FoundChunks found) {
  const MutexLock lock(mutex_);
  jobs_.emplace_back([order, pages_layers, found = std::move(found), now = clock_.now()](
                         BlockEngine& engine) { engine.restore(order, pages_layers, found, now); });
  arrived_.notify_all();
}

}  // namespace atl::serve
