#include "atoll/chain/directory_service.h"

#include <optional>
#include <utility>
#include <variant>

#include "atoll/base/error.h"
#include "atoll/chain/wire.h"

namespace atl::chain {

DirectoryService::DirectoryService(net::Transport& transport, EventSink tell, Time now)
    : transport_(transport), tell_(std::move(tell)), directory_(now) {}

void DirectoryService::handle(const net::Event& event, Time now) {
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    std::optional<identity::PeerId> peer;
    if (opened->certificate) peer = opened->certificate->peer;
    act(directory_.opened(opened->connection, std::move(peer), now));
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    Message message;
    try {
      message = decode(received->frame);
    } catch (const InputError& error) {
      return act(directory_.garbled(received->connection, error.what(), now));
    }
    act(directory_.received(received->connection, message, now));
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    act(directory_.lost(lost->connection, now));
  }
}

void DirectoryService::tick(Time now) { act(directory_.tick(now)); }

void DirectoryService::tell_revocations(Bytes signed_list) {
  act(directory_.tell_revocations(std::move(signed_list)));
}

void DirectoryService::act(Directory::Actions actions) {
  for (auto& action : actions) {
    if (auto* send = std::get_if<Directory::Send>(&action)) {
      // Who reads nothing for so long that its queue is full is as good as gone.
      if (transport_.send(send->to, encode(send->message)) == net::Sent::kFull) {
        transport_.close(send->to);
      }
    } else if (auto* close = std::get_if<Directory::Close>(&action)) {
      transport_.close(close->connection);
    } else if (auto* log = std::get_if<Directory::Log>(&action)) {
      if (tell_) tell_(log->event);
    }
  }
}

}  // namespace atl::chain
