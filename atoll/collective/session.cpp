#include "atoll/collective/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "atoll/base/check.h"
#include "atoll/base/mutex.h"
#include "atoll/collective/engine.h"
#include "atoll/collective/round_result.h"
#include "atoll/collective/worker.h"
#include "atoll/net/address.h"
#include "atoll/swarm/inbox.h"

namespace atl::collective {
namespace {

constexpr size_t kMaxQueuedBytes = size_t{1} << 30;         // Received, not yet looked at.
constexpr Duration kLongestRest = std::chrono::seconds(5);  // Others wait for what is done here.
constexpr Duration kLongestNap = std::chrono::seconds(1);
constexpr Duration kCancelInterval = std::chrono::milliseconds(100);
constexpr size_t kMaxCheckpoints = 4096;  // Older ones are not offered.

}  // namespace

Duration rest_after(Duration busy, double share) {
  ATOLL_CHECK(share > 0 && share <= 1, "a share of the time");
  using Exact = std::chrono::duration<double, Duration::period>;  // Does not overflow.
  return std::chrono::duration_cast<Duration>(
      std::min<Exact>(busy * (1 / share - 1), kLongestRest));
}

/// Callers' threads post commands; the session's thread runs them and the transport's events
/// through the engine and publishes what came of it under `mutex`.
class Session::Impl final : public EngineListener {
 public:
  using Command = std::function<void(Engine&, Time now)>;

  Impl(SessionOptions options, const net::TransportFactory& make_transport, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        inbox_(kMaxQueuedBytes),
        transport_(make_transport([this](net::Event event) {
          const auto* received = std::get_if<net::Received>(&event);
          const size_t size = received != nullptr ? received->frame.size() : 0;
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
    const auto address = net::parse_address(*bound);
    if (address && (address->host == "0.0.0.0" || address->host == "::")) {
      return failure(
          fmt::format("--listen {}: other islands are told this address, so it must name "
                      "this machine as they see it, e.g. 192.168.1.5:7071",
                      options_.listen));
    }
    engine_.emplace(options_, *bound, *transport_, *this);
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
    return {};
  }

  void post(Command command) { inbox_.push(std::move(command)); }

  /// Blocks until `done()` holds (under the mutex) or the run has failed.
  template <typename Done>
  Result<void> wait_until(Done done) ATOLL_UNCHECKED {
    MutexLock lock(mutex_);
    while (!done() && !failure_) changed_.wait(lock);
    if (done()) return {};
    return tl::unexpected(*failure_);
  }

  /// The same before the run begins, when the user may still change their mind.
  template <typename Done>
  Result<void> wait_for_start(Done done, const char* what) ATOLL_UNCHECKED {
    MutexLock lock(mutex_);
    while (!done() && !failure_) {
      changed_.wait_for(lock, kCancelInterval);
      // What has come counts: the others begin with this island.
      if (!done() && options_.cancelled())
        return failure(fmt::format("interrupted while waiting for {}", what));
    }
    if (done()) return {};
    return tl::unexpected(*failure_);
  }

  bool is_decided(int64_t round) const {
    const MutexLock lock(mutex_);
    return failure_ || commits_.contains(round);
  }
  bool is_committed(int64_t round) const {
    const MutexLock lock(mutex_);
    return commits_.contains(round);
  }

  Result<Commit> take_commit(int64_t round) {
    if (!is_committed(round)) {  // Else nobody has to be woken.
      num_waiting_ += 1;
      post([](Engine&, Time) {});  // Ends a rest.
      auto waited = wait_until([&]() ATOLL_REQUIRES(mutex_) { return commits_.contains(round); });
      num_waiting_ -= 1;
      if (!waited) return tl::unexpected(waited.error());
    }
    const MutexLock lock(mutex_);
    begun_.erase(round);
    return std::move(commits_.extract(round).mapped());
  }

  /// On the caller's thread: from here on the round's commit is for wait().
  void note_begun(int64_t round) {
    const MutexLock lock(mutex_);
    begun_.insert(round);
    const auto missed = std::ranges::find(missed_, round, &Commit::round);
    if (missed == missed_.end()) return;
    commits_[round] = std::move(*missed);
    missed_.erase(missed);
  }

  std::optional<Commit> take_missed() {
    const MutexLock lock(mutex_);
    if (missed_.empty()) return std::nullopt;
    Commit commit = std::move(missed_.front());
    missed_.pop_front();
    return commit;
  }

  std::optional<int64_t> take_position() {
    const MutexLock lock(mutex_);
    return std::exchange(position_, std::nullopt);
  }

  std::optional<DueRound> take_due() {
    const MutexLock lock(mutex_);
    return std::exchange(due_, std::nullopt);
  }

  Result<FetchedState> fetch_state(int32_t fragment, size_t size) {
    post([fragment, size](Engine& engine, Time now) { engine.fetch_state(fragment, size, now); });
    auto waited = wait_until([&]() ATOLL_REQUIRES(mutex_) { return fetched_.contains(fragment); });
    if (!waited) return tl::unexpected(waited.error());
    const MutexLock lock(mutex_);
    return std::move(fetched_.extract(fragment).mapped());
  }

  Result<int64_t> next_unit() {
    auto waited = wait_until([&]() ATOLL_REQUIRES(mutex_) { return !units_.empty(); });
    if (!waited) return tl::unexpected(waited.error());
    const MutexLock lock(mutex_);
    if (failure_) return tl::unexpected(*failure_);
    swarm::Units& front = units_.front();
    const int64_t unit = front.first;
    front = {front.at(1), front.stride, front.count - 1};
    if (front.count == 0) units_.pop_front();
    return unit;
  }

  swarm::Ending ending() const {
    const MutexLock lock(mutex_);
    return ending_;
  }

  ExchangeStats stats() const {
    const net::Traffic traffic = transport_->traffic();
    return {.bytes_sent = traffic.bytes_sent, .bytes_received = traffic.bytes_received};
  }

  const SessionOptions& options() const { return options_; }
  const std::string& run_name() const { return run_; }
  const std::string& config() const { return config_; }
  const std::optional<StartInfo>& start() const { return start_; }

  Result<void> wait_for_welcome() {
    return wait_for_start([&]() ATOLL_REQUIRES(mutex_) { return is_welcome_; }, "the coordinator");
  }
  Result<void> wait_for_others() {
    return wait_for_start([&] { return start_.has_value(); }, "the other islands");
  }
  Result<void> wait_until_left() {
    return wait_until([&]() ATOLL_REQUIRES(mutex_) { return has_left_; });
  }

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

  template <typename Change>
  void publish(Change change) ATOLL_UNCHECKED {
    {
      const MutexLock lock(mutex_);
      change();
    }
    changed_.notify_all();  // Who is woken need not wait for the lock.
  }
  void welcomed(const std::string& run, const std::string& config) override {
    publish([&]() ATOLL_REQUIRES(mutex_) {
      run_ = run;
      config_ = config;
      is_welcome_ = true;
    });
  }
  void started(const StartInfo& info) override {
    publish([&]() ATOLL_REQUIRES(mutex_) { start_ = info; });
  }
  void committed(const Commit& commit, bool begun) override {
    publish([&]() ATOLL_REQUIRES(mutex_) {
      if (due_ && due_->round <= commit.round) due_.reset();
      if (begun || begun_.contains(commit.round)) {
        commits_[commit.round] = commit;
      } else {
        missed_.push_back(commit);
      }
    });
  }
  void leased(const std::vector<swarm::Units>& units) override {
    publish(
        [&]() ATOLL_REQUIRES(mutex_) { units_.insert(units_.end(), units.begin(), units.end()); });
  }
  void called(const DueRound& due) override {
    publish([&]() ATOLL_REQUIRES(mutex_) { due_ = due; });
  }
  void reinstated(int64_t step) override {
    publish([&]() ATOLL_REQUIRES(mutex_) { position_ = step; });
  }
  void fetched(int32_t fragment, Result<FetchedState> state) override {
    publish([&]() ATOLL_REQUIRES(mutex_) { fetched_.emplace(fragment, std::move(state)); });
  }
  void left() override {
    publish([&]() ATOLL_REQUIRES(mutex_) { has_left_ = true; });
  }
  void failed(const std::string& reason, swarm::Ending ending) override {
    worker_.wait();  // The caller's memory is its own again once it hears of this.
    copier_.wait();
    publish([&]() ATOLL_REQUIRES(mutex_) {
      failure_ = Failure{reason};
      ending_ = ending;
    });
  }

  const SessionOptions options_;
  const Clock& clock_;

  mutable Mutex mutex_;
  Condition changed_;
  // Written once, with mutex_ held, before the caller may read them.
  std::string run_;
  std::string config_;
  std::optional<StartInfo> start_;
  bool is_welcome_ ATOLL_GUARDED_BY(mutex_) = false;
  bool has_left_ ATOLL_GUARDED_BY(mutex_) = false;
  /// Rounds that the caller has not waited for.
  std::set<int64_t> begun_ ATOLL_GUARDED_BY(mutex_);
  std::map<int64_t, Commit> commits_ ATOLL_GUARDED_BY(mutex_);  // Of those.
  std::deque<Commit> missed_ ATOLL_GUARDED_BY(mutex_);          // The others.
  std::deque<swarm::Units> units_ ATOLL_GUARDED_BY(mutex_);
  std::optional<DueRound> due_ ATOLL_GUARDED_BY(mutex_);
  std::optional<int64_t> position_ ATOLL_GUARDED_BY(mutex_);
  std::map<int32_t, Result<FetchedState>> fetched_ ATOLL_GUARDED_BY(mutex_);
  swarm::Ending ending_ ATOLL_GUARDED_BY(mutex_) = swarm::Ending::kFailure;
  std::optional<Failure> failure_ ATOLL_GUARDED_BY(mutex_);

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
  auto welcome = impl->wait_for_welcome();
  if (!welcome) return tl::unexpected(welcome.error());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const std::string& Session::config_text() const { return impl_->config(); }
const std::string& Session::run() const { return impl_->run_name(); }

Result<StartInfo> Session::ready(ReadyReport report) {
  while (report.checkpoints.size() > kMaxCheckpoints) {
    report.checkpoints.erase(report.checkpoints.begin());
  }
  impl_->post([report = std::move(report)](Engine& engine, Time) mutable {
    engine.ready(std::move(report));
  });
  auto started = impl_->wait_for_others();
  if (!started) return tl::unexpected(started.error());
  return *impl_->start();
}

int Session::num_members() const {
  ATOLL_CHECK(impl_->start().has_value(), "ready() comes first");
  return impl_->start()->num_members;
}

void Session::begin(Contribution contribution) {
  impl_->note_begun(contribution.round);
  impl_->post([contribution = std::move(contribution)](Engine& engine, Time now) mutable {
    engine.begin(std::move(contribution), now);
  });
}

Result<Commit> Session::wait(int64_t round) { return impl_->take_commit(round); }
std::optional<Commit> Session::take_missed() { return impl_->take_missed(); }
std::optional<DueRound> Session::take_due() { return impl_->take_due(); }
bool Session::is_decided(int64_t round) const { return impl_->is_decided(round); }
std::optional<int64_t> Session::take_position() { return impl_->take_position(); }
Result<FetchedState> Session::fetch_state(int32_t fragment, size_t size) {
  return impl_->fetch_state(fragment, size);
}
Result<int64_t> Session::next_unit() { return impl_->next_unit(); }
swarm::Ending Session::ending() const { return impl_->ending(); }

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
  return impl_->wait_until_left();
}

}  // namespace atl::collective
