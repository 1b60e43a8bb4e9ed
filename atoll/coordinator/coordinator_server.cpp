#include "atoll/coordinator/coordinator_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/chain/directory_service.h"
#include "atoll/chain/wire.h"
#include "atoll/coordinator/event_inbox.h"
#include "atoll/coordinator/events.h"
#include "atoll/coordinator/run_router.h"
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
                                       Time now, std::string authority)
    : coordinator_(std::move(options), std::move(book), now),
      callbacks_(std::move(callbacks)),
      transport_(transport),
      authority_(std::move(authority)) {
  act(coordinator_.begin());
}

bool CoordinatorService::answer_call(const net::Event& event, Time now) {
  using Answer = AddressCalls::Answer;
  const auto connection = std::visit([](const auto& any) { return any.connection; }, event);
  const auto found = calls_.find(connection);
  if (found == calls_.end()) return false;
  std::optional<Coordinator::Call>& call = found->second;
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    const auto& certificate = opened->certificate;
    const bool is_other = certificate && certificate->peer.name != call->name;
    const auto answer = is_other ? Answer::kAnother : Answer::kItself;
    const std::string reason =
        is_other ? fmt::format("'{}' is there", certificate->peer.name) : std::string();
    act(coordinator_.called(*std::exchange(call, {}), answer, reason, now));
    transport_.close(connection);
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    const auto unanswered = std::exchange(call, {});
    calls_.erase(found);
    if (unanswered) act(coordinator_.called(*unanswered, Answer::kNobody, lost->reason, now));
  }
  return true;
}

void CoordinatorService::handle(net::Event event, Time now) {
  if (answer_call(event, now)) return;
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
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
    act(coordinator_.lost(lost->connection, lost->reason, now));
  }
}

void CoordinatorService::tick(Time now) { act(coordinator_.tick(now)); }

void CoordinatorService::request_stop(Time now) { act(coordinator_.request_stop(now)); }

void CoordinatorService::tell_revocations(Bytes signed_list, Time now) {
  act(coordinator_.tell_revocations(std::move(signed_list), now));
}

void CoordinatorService::end(const std::string& reason) { act(coordinator_.end(reason)); }

void CoordinatorService::hang_up() {
  for (const auto& [connection, call] : calls_) transport_.close(connection);
}

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
    } else if (auto* call = std::get_if<Coordinator::Call>(&action)) {
      const auto connection = transport_.connect_as(authority_, call->address, net::Plane::kBulk);
      calls_.emplace(connection, std::move(*call));
    } else if (auto* log = std::get_if<Coordinator::Log>(&action)) {
      if (callbacks_.on_event) callbacks_.on_event(log->event);
    } else if (auto* finished = std::get_if<Coordinator::Finished>(&action)) {
      result_ = std::move(finished->result);
    }
  }
}

struct CoordinatorServer::State {
  struct Served {
    std::string name;
    CoordinatorCallbacks callbacks;
    AuthorityCallbacks authority;
    std::unique_ptr<CoordinatorService> service;
    std::unique_ptr<chain::DirectoryService> directory;
    std::optional<Result<void>> result;  // Set once no callback is called any more.
    bool is_abandoned = false;
    std::string last_complaint;  // Of its list of who is revoked; each is told once.
  };

  State(std::vector<ServedRun> runs, const net::TransportFactory& make_transport,
        const Clock& clock_in, std::function<void(const std::string&)> on_log_in)
      : clock(clock_in),
        on_log(std::move(on_log_in)),
        router(places_of(runs)),
        join_desk([this](const std::string& run, std::string_view request,
                         const identity::Caller& caller) { return answer(run, request, caller); }),
        transport(make_transport([this](net::Event event) { inbox.push(std::move(event)); })) {
    for (ServedRun& run : runs) {
      const std::string fingerprint = run.authority.fingerprint;
      served.push_back(
          {.name = std::move(run.name),
           .callbacks = run.callbacks,
           .authority = std::move(run.authority),
           .service = std::make_unique<CoordinatorService>(
               std::move(run.options), std::move(run.book), std::move(run.callbacks), *transport,
               clock.now(), fingerprint),
           .directory = std::make_unique<chain::DirectoryService>(
               *transport,
               [this, number = served.size()](const Event& event) { note(served[number], event); },
               clock.now())});
    }
  }

  /// What a run's directory tells.
  static void note(const Served& run, const Event& event) {
    if (!run.result && run.callbacks.on_event) run.callbacks.on_event(event);
  }

  static std::vector<RunRouter::Run> places_of(const std::vector<ServedRun>& runs) {
    std::vector<RunRouter::Run> places;
    for (const ServedRun& run : runs) {
      places.push_back(
          {.name = run.name, .id = run.options.run, .authority = run.authority.fingerprint});
    }
    return places;
  }

  /// Of who asks for a certificate; nothing where that run has none to give.
  std::string answer(const std::string& authority, std::string_view request,
                     const identity::Caller& caller) const {
    const auto asked = std::ranges::find_if(served, [&](const Served& run) {
      return run.authority.answer && !run.result && run.authority.fingerprint == authority;
    });
    return asked == served.end() ? std::string() : asked->authority.answer(request, caller);
  }

  void serve_once(Time deadline) {
    Time until = std::min(deadline, router.next_deadline());
    for (const Served& run : served) {
      until = std::min({until, next_deadline(run), run.directory->next_deadline()});
    }
    const Duration patience = std::clamp(until - clock.now(), Duration{}, kPollInterval);
    if (auto event = inbox.pop(patience)) {
      handle(std::move(*event));
    }
    join_desk.tick(clock.now());
    for (JoinDesk::LastWord& word : join_desk.take_last_words()) {
      if (!word.frame.empty()) {
        std::ignore = transport->send(word.connection, std::move(word.frame));
      }
      transport->close(word.connection);
    }
    for (const net::ConnectionId connection : inbox.take_greedy()) {
      if (on_log) on_log("a connection was closed that sent more than a coordinator can hold");
      transport->close(connection);
    }
    if (clock.now() >= router.next_deadline()) act(router.tick(clock.now()));
    for (const Served& run : served) {
      if (clock.now() >= run.directory->next_deadline()) run.directory->tick(clock.now());
    }
    for (size_t run = 0; run < served.size(); ++run) {
      if (clock.now() < next_deadline(served[run])) continue;
      with(run, [&](CoordinatorService& service) { service.tick(clock.now()); });
    }
  }

  void handle(net::Event event) {
    const auto connection = std::visit([](const auto& any) { return any.connection; }, event);
    const auto called = std::ranges::find_if(
        served, [&](const Served& run) { return run.service->has_called(connection); });
    if (called != served.end()) {
      with(static_cast<size_t>(called - served.begin()),
           [&](CoordinatorService& service) { service.handle(std::move(event), clock.now()); });
    } else if (!join_desk.handle(event, clock.now())) {
      act(router.handle(std::move(event), clock.now()));
    }
  }

  static Time next_deadline(const Served& run) {
    return run.is_abandoned ? Time::max() : run.service->next_deadline();
  }

  void act(RunRouter::Actions actions) {
    for (auto& action : actions) {
      if (auto* deliver = std::get_if<RunRouter::Deliver>(&action)) {
        if (deliver->is_for_directory) {
          served[deliver->run].directory->handle(deliver->event, clock.now());
          continue;
        }
        with(deliver->run, [&](CoordinatorService& service) {
          service.handle(std::move(deliver->event), clock.now());
        });
      } else if (auto* send = std::get_if<RunRouter::Send>(&action)) {
        std::ignore = transport->send(send->to, encode(send->message));  // Its last word.
      } else if (auto* refuse = std::get_if<RunRouter::RefuseChain>(&action)) {
        std::ignore = transport->send(refuse->to, chain::encode(refuse->message));
      } else if (auto* reply = std::get_if<RunRouter::Reply>(&action)) {
        // Who asks for more than it reads is not measuring a line.
        if (transport->send_shared(reply->to, probe_reply(reply->num_bytes)) == net::Sent::kFull) {
          transport->close(reply->to);
        }
      } else if (auto* close = std::get_if<RunRouter::Close>(&action)) {
        transport->close(close->connection);
      } else if (auto* log = std::get_if<RunRouter::Log>(&action)) {
        if (on_log) on_log(log->line);
      }
    }
  }

  /// What happens to one run never ends another.
  template <typename Do>
  void with(size_t number, Do&& happens) {
    Served& run = served[number];
    if (run.is_abandoned) return;
    try {
      happens(*run.service);
    } catch (const InputError& error) {
      return abandon(number, error.what());
    }
    if (run.result || !run.service->result()) return;
    report(run);
    conclude(run, *run.service->result());
    act(router.end(number));
  }

  /// It could not keep what it was about to decide. Nobody has heard of that, and nobody may: it
  /// goes on from its journal in another process.
  void abandon(size_t number, const std::string& reason) {
    Served& run = served[number];
    run.is_abandoned = true;
    run.service->hang_up();
    if (run.callbacks.on_event) run.callbacks.on_event(RunStandsStill{reason});
    conclude(run, failure(reason));
    act(router.abandon(number));
  }

  void conclude(Served& run, Result<void> result) {
    run.result = std::move(result);
    if (run.callbacks.on_end) run.callbacks.on_end();
  }

  void look_for_revocations(size_t number) {
    Served& run = served[number];
    if (!run.authority.newer_revocations || run.result) return;
    std::optional<Bytes> list;
    try {
      list = run.authority.newer_revocations();
    } catch (const InputError& error) {  // A disk that is full or away: the last list stays.
      if (on_log && run.last_complaint != error.what()) on_log(error.what());
      run.last_complaint = error.what();
    }
    if (!list) return;
    run.directory->tell_revocations(*list);
    with(number,
         [&](CoordinatorService& service) { service.tell_revocations(*list, clock.now()); });
  }

  void report(const Served& run) {
    if (run.result || !run.callbacks.on_progress) return;
    RunStatus status = run.service->coordinator().status(clock.now());
    status.servers = server_statuses(run.directory->directory().leases());
    run.callbacks.on_progress(status);
  }

  void end_all(const std::string& reason) {
    for (size_t run = 0; run < served.size(); ++run) {
      with(run, [&](CoordinatorService& service) { service.end(reason); });
    }
  }

  void stop_all() {
    for (size_t run = 0; run < served.size(); ++run) {
      with(run, [&](CoordinatorService& service) { service.request_stop(clock.now()); });
    }
  }

  Result<void> verdict() const {
    if (served.size() == 1) return *served[0].result;
    size_t num_failed = 0;
    std::string reasons;
    for (const Served& run : served) {
      if (*run.result) continue;
      num_failed += 1;
      reasons += fmt::format("\n  {}: {}", run.name, run.result->error().message);
    }
    if (num_failed == 0) return {};
    return failure(fmt::format("{} of {} runs failed:{}", num_failed, served.size(), reasons));
  }

  const Clock& clock;
  std::function<void(const std::string&)> on_log;
  EventInbox inbox{kMaxQueuedBytes};  // The transport's sink uses it: it must go last.
  RunRouter router;
  JoinDesk join_desk;
  std::unique_ptr<net::Transport> transport;
  std::vector<Served> served;
};

CoordinatorServer::CoordinatorServer(std::vector<ServedRun> runs,
                                     const net::TransportFactory& make_transport,
                                     const Clock& clock,
                                     std::function<void(const std::string&)> on_log)
    : state_(std::make_unique<State>(std::move(runs), make_transport, clock, std::move(on_log))) {}

CoordinatorServer::~CoordinatorServer() = default;

Result<std::string> CoordinatorServer::listen(const std::string& address) {
  return state_->transport->listen(address);
}

Result<void> CoordinatorServer::run(const std::function<int()>& num_stops) {
  State& state = *state_;
  Time next_progress = state.clock.now();
  while (!state.router.is_over()) {
    state.serve_once(next_progress);
    const int stops = num_stops ? num_stops() : 0;
    if (stops == 1) state.stop_all();
    if (stops > 1) state.end_all("the coordinator was interrupted");
    if (state.clock.now() >= next_progress) {
      next_progress = state.clock.now() + kProgressInterval;
      for (size_t run = 0; run < state.served.size(); ++run) {
        state.report(state.served[run]);
        state.look_for_revocations(run);
      }
    }
  }
  const Time end = state.clock.now() + kDrainPatience;  // The last words are still on their way.
  while (!state.router.is_drained() && state.clock.now() < end) state.serve_once(end);
  return state.verdict();
}

}  // namespace atl::swarm
