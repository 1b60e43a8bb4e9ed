#include "atoll/net/http_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <atomic>
#include <map>
#include <utility>

#include "atoll/net/acceptor.h"
#include "atoll/net/address.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/http_connection.h"
#include "atoll/net/thread_crew.h"

namespace atl::net {
namespace {

/// A client that is refused may still send: closed at once, it would see an error in place of why.
constexpr Duration kDrainTime = std::chrono::seconds(1);

DoorLimits door_limits(const HttpLimits& limits) {
  const auto all = static_cast<int>(limits.connections);
  const auto one = static_cast<int>(limits.per_address);
  return {.per_address = one, .greeting = all, .greeting_per_address = one};
}

}  // namespace

/// What waits for a request belongs to the loop; what is answered, to a thread of the crew.
class HttpServer::State {
 public:
  State(HttpHandler handler, const Clock& clock, HttpLimits limits,
        std::shared_ptr<const HttpsHost> https)
      : handler_(std::move(handler)),
        clock_(clock),
        limits_(limits),
        https_(std::move(https)),
        loop_(std::make_shared<EventLoop>(clock)),
        crew_(limits.threads) {}
  ~State() {
    stopping_ = true;
    loop_->stop();  // It asks the crew, which goes first of the members: answers end soon then.
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<Address> listen(const Address& address) {
    return acceptor_.listen(
        loop_, std::make_shared<Door>(door_limits(limits_)), address,
        [this](Descriptor socket, std::shared_ptr<Door::Place> place) {
          auto stream = https_ != nullptr ? https_->called_stream(std::move(socket))
                                          : make_plain_stream(std::move(socket));
          wait(std::make_shared<HttpConnection>(
                   std::move(stream), std::move(place),
                   HttpReader::Limits{limits_.head_bytes, limits_.body_bytes}, clock_, stopping_),
               limits_.deadline);
        });
  }

 private:
  using Outcome = HttpConnection::Progress::Outcome;
  using Shared = std::shared_ptr<HttpConnection>;
  struct Waiting {
    Shared connection;
    uint64_t number = 0;   // Of this wait: a timer of an earlier one ends nothing.
    bool is_idle = false;  // No request has begun, as far as is known.
    bool is_draining = false;
  };

  /// For a request, until it is over with that patience.
  void wait(const Shared& connection, Duration patience) {
    const int descriptor = connection->descriptor();
    waiting_[descriptor] = {.connection = connection, .is_idle = true};
    end_after(descriptor, patience);
    loop_->watch(descriptor, EPOLLIN, [this, descriptor](uint32_t) { go_on(descriptor); });
    go_on(descriptor);
  }

  void end_after(int descriptor, Duration patience) {
    const uint64_t number = waiting_.at(descriptor).number = ++last_number_;
    loop_->call_after(patience, [this, descriptor, number] {
      const auto found = waiting_.find(descriptor);
      if (found != waiting_.end() && found->second.number == number) end(descriptor);
    });
  }

  void end(int descriptor) {
    loop_->forget(descriptor);
    waiting_.erase(descriptor);
  }

  void go_on(int descriptor) {
    const auto found = waiting_.find(descriptor);
    if (found == waiting_.end()) return;
    const Shared connection = found->second.connection;
    if (found->second.is_draining) {
      if (!connection->drain()) end(descriptor);
      return;
    }
    const Outcome outcome = connection->read_on().outcome;
    if (found->second.is_idle && connection->reader().has_begun()) {
      found->second.is_idle = false;
      end_after(descriptor, limits_.deadline);  // One that began late has the time of all others.
    }
    switch (outcome) {
      case Outcome::kWantRead:
        loop_->rewatch(descriptor, EPOLLIN);
        return;
      case Outcome::kWantWrite:
        loop_->rewatch(descriptor, EPOLLOUT);
        return;
      case Outcome::kMore:
        loop_->post([this, descriptor, number = found->second.number] {
          const auto still = waiting_.find(descriptor);
          if (still != waiting_.end() && still->second.number == number) go_on(descriptor);
        });
        return;
      case Outcome::kEnded:
        end(descriptor);
        return;
      case Outcome::kBad:
        connection->refuse();
        drain(descriptor);
        return;
      case Outcome::kRequest:
        end(descriptor);
        answer(connection);
        return;
    }
  }

  void drain(int descriptor) {
    Waiting& waiting = waiting_.at(descriptor);
    waiting.connection->say_goodbye();
    waiting.is_draining = true;
    loop_->rewatch(descriptor, EPOLLIN);
    end_after(descriptor, kDrainTime);
  }

  void answer(const Shared& connection) {
    crew_.run([this, connection] {
      const bool stays = connection->answer(handler_, limits_.keep_alive > Duration{},
                                            limits_.deadline, limits_.body_bytes > 0);
      loop_->post([this, connection, stays] { wait_again(connection, stays); });
    });
  }

  void wait_again(const Shared& connection, bool stays) {
    const int descriptor = connection->descriptor();
    if (stays) {
      wait(connection, limits_.keep_alive);
      return;
    }
    waiting_[descriptor] = {.connection = connection};
    loop_->watch(descriptor, EPOLLIN, [this, descriptor](uint32_t) { go_on(descriptor); });
    drain(descriptor);
    go_on(descriptor);
  }

  const HttpHandler handler_;
  const Clock& clock_;
  const HttpLimits limits_;
  const std::shared_ptr<const HttpsHost> https_;
  std::atomic<bool> stopping_{false};
  std::map<int, Waiting> waiting_;  // Of the loop's thread alone, like the next.
  uint64_t last_number_ = 0;
  Acceptor acceptor_;
  const std::shared_ptr<EventLoop> loop_;
  ThreadCrew crew_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address,
                                                      HttpHandler handler, const Clock& clock,
                                                      HttpLimits limits,
                                                      std::shared_ptr<const HttpsHost> https,
                                                      Exposure exposure) {
  const auto where = parse_address(address);
  if (!where) return failure(where.error().message);
  if (https == nullptr && exposure == Exposure::kLoopbackInTheClear && !is_loopback(*where)) {
    return failure(
        fmt::format("{} is not for this machine alone, and whoever reaches it could read along",
                    where->text()));
  }
  auto state = std::make_unique<State>(std::move(handler), clock, limits, std::move(https));
  const auto bound = state->listen(*where);
  if (!bound) return failure(bound.error().message);
  return std::unique_ptr<HttpServer>(new HttpServer(bound->text(), std::move(state)));
}

HttpServer::HttpServer(std::string address, std::unique_ptr<State> state)
    : address_(std::move(address)), state_(std::move(state)) {}

HttpServer::~HttpServer() = default;

}  // namespace atl::net
