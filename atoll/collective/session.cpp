#include "atoll/collective/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "atoll/base/check.h"
#include "atoll/collective/engine.h"
#include "atoll/collective/session_board.h"
#include "atoll/collective/worker.h"
#include "atoll/net/address.h"
#include "atoll/swarm/inbox.h"

namespace atl::collective {
namespace {

constexpr size_t kMaxQueuedBytes = size_t{1} << 30;         // Received, not yet looked at.
constexpr Duration kLongestRest = std::chrono::seconds(5);  // Others wait for what is done here.
constexpr Duration kLongestNap = std::chrono::seconds(1);
constexpr size_t kMaxCheckpoints = 4096;  // Older ones are not offered.

}  // namespace

Duration rest_after(Duration busy, double share) {
  ATOLL_CHECK(share > 0 && share <= 1, "a share of the time");
  using Exact = std::chrono::duration<double, Duration::period>;  // Does not overflow.
  return std::chrono::duration_cast<Duration>(
      std::min<Exact>(busy * (1 / share - 1), kLongestRest));
}

/// Callers' threads post commands; the session's thread runs them and the transport's events
/// through the engine, and what came of it stands on the board.
class Session::Impl final : public EngineListener {
 public:
  using Command = std::function<void(Engine&, Time now)>;

  Impl(SessionOptions options, const net::TransportFactory& make_transport, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        board_(options_.cancelled),
        inbox_(kMaxQueuedBytes),
        transport_(make_transport([this](net::Event event) {
          const size_t size = net::frame_bytes(event);
          inbox_.push(std::move(event), size);
        })) {}

  ~Impl() override {
    thread_.request_stop();
    inbox_.close();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> run() {
    auto bound = transport_->listen(options_.listen);
    if (!bound) return tl::unexpected(bound.error());
    const std::string told = options_.advertise.empty() ? *bound : options_.advertise;
    const auto address = net::parse_address(told);
    if (address && net::is_any_host(address->host)) {
      return failure(
          fmt::format("{} is no address that others can go to: listen on this machine as they see "
                      "it, e.g. 192.168.1.5:7071, or say so with --advertise",
                      told));
    }
    engine_.emplace(options_, told, *transport_, *this);
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
    return {};
  }

  void post(Command command) { inbox_.push(std::move(command)); }

  /// While the caller waits the session's thread does not rest.
  Result<Commit> take_commit(int64_t round) {
    const bool waits = !board_.is_committed(round);  // Else nobody has to be woken.
    if (waits) {
      num_waiting_ += 1;
      post([](Engine&, Time) {});  // Ends a rest.
    }
    auto commit = board_.take_commit(round);
    if (waits) num_waiting_ -= 1;
    return commit;
  }

  ExchangeStats stats() const {
    const net::Traffic traffic = transport_->traffic();
    return {.bytes_sent = traffic.bytes_sent, .bytes_received = traffic.bytes_received};
  }

  SessionBoard& board() { return board_; }

 private:
  void loop(const std::stop_token& stop) {
    engine_->connect(clock_.now());
    bool is_idle = false;  // The engine has no work before the next event.
    while (!stop.stop_requested()) {
      Time until = engine_->next_deadline();
      if (!is_idle) until = std::min(until, num_waiting_ > 0 ? Time{} : rest_until_);
      auto item = inbox_.pop(std::clamp(until - clock_.now(), Duration{}, kLongestNap));
      if (stop.stop_requested()) break;
      if (item) {
        is_idle = false;
      } else if (!is_idle && (num_waiting_ > 0 || clock_.now() >= rest_until_)) {
        is_idle = !work();
      }
      if (item && std::holds_alternative<Command>(*item)) {
        std::get<Command> (*item)(*engine_, clock_.now());
      } else if (item) {
        engine_->handle(std::move(std::get<net::Event>(*item)), clock_.now());
      }
      if (inbox_.overflowed() && !item && !engine_->over()) {
        engine_->trouble("the other islands sent more than this one can hold", clock_.now());
      }
      if (clock_.now() >= engine_->next_deadline()) engine_->tick(clock_.now());
    }
    engine_->trouble("it ended before the run did; its own messages say why", clock_.now());
  }

  void prepare(PrepareJob job) override {
    worker_.start([this, job = std::move(job)]() mutable {
      const Time begin = clock_.now();
      const Result<Digest> digest = job();
      job = nullptr;
      const Duration busy = clock_.now() - begin;
      post([this, digest, busy](Engine& engine, Time now) {
        rest_until_ = now + rest_after(busy, options_.work_share);
        engine.prepared(digest, now);
      });
    });
  }

  void copy(CopyJob job) override {
    copier_.start([this, job = std::move(job)]() mutable {
      auto state = job();
      job = nullptr;
      post([state = std::move(state)](Engine& engine, Time now) { engine.copied(state, now); });
    });
  }

  /// One unit, and then a rest.
  bool work() {
    const Time begin = clock_.now();
    const bool worked = engine_->work(begin);
    const Time end = clock_.now();
    if (worked) rest_until_ = end + rest_after(end - begin, options_.work_share);
    return worked;
  }

  void welcomed(const std::string& run, const std::string& config) override {
    board_.welcomed(run, config);
  }
  void started(const StartInfo& info) override { board_.started(info); }
  void committed(const Commit& commit, bool begun) override { board_.committed(commit, begun); }
  void leased(const std::vector<swarm::Units>& units) override { board_.leased(units); }
  void called(const DueRound& due) override { board_.called(due); }
  void reinstated(int64_t step) override { board_.reinstated(step); }
  void fetched(int32_t fragment, Result<FetchedState> state) override {
    board_.fetched(fragment, std::move(state));
  }
  void left() override { board_.left(); }
  void failed(const std::string& reason, swarm::Ending ending) override {
    worker_.wait();  // The caller's memory is its own again once it hears of this.
    copier_.wait();
    board_.failed(reason, ending);
  }

  const SessionOptions options_;
  const Clock& clock_;
  SessionBoard board_;
  std::atomic<int> num_waiting_ = 0;  // In take_commit().
  Time rest_until_{};                 // Of the session's thread.
  // In the order of need: the thread uses the worker, which uses the inbox, and the engine, which
  // uses the transport, whose sink uses the inbox.
  swarm::Inbox<std::variant<net::Event, Command>> inbox_;
  std::unique_ptr<net::Transport> transport_;
  std::optional<Engine> engine_;
  Worker worker_;  // For outer steps.
  Worker copier_;  // Of states.
  std::jthread thread_;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::connect(SessionOptions options,
                                                  const net::TransportFactory& make_transport,
                                                  const Clock& clock) {
  if (auto address = net::parse_address(options.coordinator); !address) {
    return tl::unexpected(address.error());
  }
  auto impl = std::make_unique<Impl>(std::move(options), make_transport, clock);
  if (auto running = impl->run(); !running) return tl::unexpected(running.error());
  auto welcome = impl->board().wait_for_welcome();
  if (!welcome) return tl::unexpected(welcome.error());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const std::string& Session::config_text() const { return impl_->board().config(); }
const std::string& Session::run() const { return impl_->board().run(); }

Result<StartInfo> Session::ready(ReadyReport report) {
  while (report.checkpoints.size() > kMaxCheckpoints) {
    report.checkpoints.erase(report.checkpoints.begin());
  }
  impl_->post([report = std::move(report)](Engine& engine, Time) mutable {
    engine.ready(std::move(report));
  });
  auto started = impl_->board().wait_for_start();
  if (!started) return tl::unexpected(started.error());
  return *impl_->board().start();
}

int Session::num_members() const {
  ATOLL_CHECK(impl_->board().start().has_value(), "ready() comes first");
  return impl_->board().start()->num_members;
}

void Session::begin(Contribution contribution) {
  impl_->board().note_begun(contribution.round);
  impl_->post([contribution = std::move(contribution)](Engine& engine, Time now) mutable {
    engine.begin(std::move(contribution), now);
  });
}

Result<Commit> Session::wait(int64_t round) { return impl_->take_commit(round); }
std::optional<Commit> Session::take_missed() { return impl_->board().take_missed(); }
std::optional<DueRound> Session::take_due() { return impl_->board().take_due(); }
bool Session::is_decided(int64_t round) const { return impl_->board().is_decided(round); }
std::optional<int64_t> Session::take_position() { return impl_->board().take_position(); }
Result<FetchedState> Session::fetch_state(int32_t fragment, size_t size) {
  impl_->post(
      [fragment, size](Engine& engine, Time now) { engine.fetch_state(fragment, size, now); });
  return impl_->board().take_state(fragment);
}
Result<int64_t> Session::next_unit() { return impl_->board().next_unit(); }
swarm::Ending Session::ending() const { return impl_->board().ending(); }

void Session::serve_state(StateProvider provider) {
  impl_->post([provider = std::move(provider)](Engine& engine, Time) mutable {
    engine.serve_state(std::move(provider));
  });
}

ExchangeStats Session::stats() const { return impl_->stats(); }

void Session::report(const ProgressReport& progress) {
  impl_->post([progress](Engine& engine, Time) { engine.report(progress); });
}

void Session::request_stop() {
  impl_->post([](Engine& engine, Time) { engine.request_stop(); });
}

Result<void> Session::leave() {
  impl_->post([](Engine& engine, Time) { engine.leave(); });
  return impl_->board().wait_until_left();
}

}  // namespace atl::collective
