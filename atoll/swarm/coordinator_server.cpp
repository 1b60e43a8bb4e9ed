#include "atoll/swarm/coordinator_server.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/swarm/inbox.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {
namespace {

constexpr size_t kMaxQueuedBytes = size_t{64} << 20;
constexpr Duration kPollInterval = std::chrono::milliseconds(50);  // For Ctrl-C.
constexpr Duration kProgressInterval = std::chrono::milliseconds(500);
constexpr Duration kDrainPatience = std::chrono::seconds(3);

}  // namespace

CoordinatorService::CoordinatorService(CoordinatorOptions options, Book book,
                                       CoordinatorCallbacks callbacks, net::Transport& transport,
                                       Time now)
    : coordinator_(std::move(options), std::move(book), now),
      callbacks_(std::move(callbacks)),
      transport_(transport) {
  act(coordinator_.begin());
}

void CoordinatorService::handle(net::Event event, Time now) {
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    num_open_ += 1;
    if (opened->plane == net::Plane::kControl) {
      act(coordinator_.opened(opened->connection, now));
    } else {  // No tensor passes through the coordinator.
      transport_.close(opened->connection);
    }
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    Message message;
    try {  // Only what came is the sender's fault: a full disk is not.
      message = decode(received->frame);
    } catch (const InputError& error) {
      return act(coordinator_.garbled(received->connection, error.what(), now));
    }
    act(coordinator_.received(received->connection, message, now));
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    num_open_ -= 1;
    act(coordinator_.lost(lost->connection, lost->reason, now));
  }
}

void CoordinatorService::tick(Time now) { act(coordinator_.tick(now)); }

void CoordinatorService::request_stop(Time now) { act(coordinator_.request_stop(now)); }

void CoordinatorService::end(const std::string& reason) { act(coordinator_.end(reason)); }

void CoordinatorService::act(Coordinator::Actions actions) {
  for (auto& action : actions) {
    if (auto* persist = std::get_if<Coordinator::Persist>(&action)) {
      if (callbacks_.persist) callbacks_.persist(persist->record);
    } else if (auto* send = std::get_if<Coordinator::Send>(&action)) {
      // An island that reads nothing for so long that its queue is full is as good as gone.
      if (transport_.send(send->to, encode(send->message)) == net::Sent::kFull) {
        transport_.close(send->to);
      }
    } else if (auto* close = std::get_if<Coordinator::Close>(&action)) {
      transport_.close(close->connection);
    } else if (auto* log = std::get_if<Coordinator::Log>(&action)) {
      if (callbacks_.on_log) callbacks_.on_log(log->line);
    } else if (auto* finished = std::get_if<Coordinator::Finished>(&action)) {
      result_ = std::move(finished->result);
    }
  }
}

struct CoordinatorServer::State {
  State(CoordinatorOptions options, Book book, const CoordinatorCallbacks& callbacks_in,
        const net::TransportFactory& make_transport, const Clock& clock_in)
      : clock(clock_in),
        callbacks(callbacks_in),
        transport(make_transport([this](net::Event event) {
          const auto* received = std::get_if<net::Received>(&event);
          const size_t size = received != nullptr ? received->frame.size() : 0;
          inbox.push(std::move(event), size);
        })),
        service(std::move(options), std::move(book), callbacks, *transport, clock.now()) {}

  void serve_once(Time deadline) {
    const Time until = std::min(deadline, service.next_deadline());
    const Duration patience = std::clamp(until - clock.now(), Duration{}, kPollInterval);
    if (auto event = inbox.pop(patience)) service.handle(std::move(*event), clock.now());
    if (inbox.overflowed()) service.end("the islands sent more than a coordinator can hold");
    if (clock.now() >= service.next_deadline()) service.tick(clock.now());
  }

  const Clock& clock;
  CoordinatorCallbacks callbacks;
  Inbox<net::Event> inbox{kMaxQueuedBytes};  // The transport's sink uses it: it must go last.
  std::unique_ptr<net::Transport> transport;
  CoordinatorService service;
};

CoordinatorServer::CoordinatorServer(CoordinatorOptions options, Book book,
                                     CoordinatorCallbacks callbacks,
                                     const net::TransportFactory& make_transport,
                                     const Clock& clock)
    : state_(std::make_unique<State>(std::move(options), std::move(book), callbacks, make_transport,
                                     clock)) {}

CoordinatorServer::~CoordinatorServer() = default;

Result<std::string> CoordinatorServer::listen(const std::string& address) {
  return state_->transport->listen(address);
}

Result<void> CoordinatorServer::run(const std::function<int()>& num_stops) {
  State& state = *state_;
  Time next_progress = state.clock.now();
  const auto report = [&] {
    if (!state.callbacks.on_progress) return;
    state.callbacks.on_progress(state.service.coordinator().status(state.clock.now()));
  };
  while (!state.service.result()) {
    state.serve_once(next_progress);
    const int stops = num_stops ? num_stops() : 0;
    if (stops == 1) state.service.request_stop(state.clock.now());
    if (stops > 1) state.service.end("the coordinator was interrupted");
    if (state.clock.now() >= next_progress) {
      next_progress = state.clock.now() + kProgressInterval;
      report();
    }
  }
  report();
  const Time end = state.clock.now() + kDrainPatience;  // The last words are still on their way.
  while (!state.service.drained() && state.clock.now() < end) state.serve_once(end);
  return *state.service.result();
}

}  // namespace atl::swarm
