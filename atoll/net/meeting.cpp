#include "atoll/net/meeting.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "atoll/base/name.h"
#include "atoll/net/circuit.h"
#include "atoll/net/dialer.h"
#include "atoll/net/punch.h"
#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

/// The relay says that the other did not come before this side gives up.
constexpr Duration kGrace = std::chrono::seconds(1);
/// A machine that happens to have the other's private address may take a call and say nothing.
constexpr Duration kPunchedGreeting = std::chrono::milliseconds(1'500);

std::string_view relay_objection(const ByteStream& stream) {
  if (!stream.peer() || stream.peer()->peer.role != identity::Role::kReader) return "";
  return "it is a reader, which relays nothing";
}

class Encounter : public std::enable_shared_from_this<Encounter> {
 public:
  Encounter(std::shared_ptr<EventLoop> loop, MeetingTerms terms, OnMet done)
      : loop_(std::move(loop)), terms_(std::move(terms)), done_(std::move(done)) {}

  void start() {
    dial(
        loop_, terms_.relay, terms_.patience,
        [self = shared_from_this()](Result<Descriptor> socket) {
          if (!socket) return self->fail(socket.error().message);
          self->greet_relay(std::move(*socket));
        },
        Port::kShared);
  }
  void fail(const std::string& why) { finish(failure(why)); }

 private:
  void finish(Result<Met> result);

  // At the relay.
  void greet_relay(Descriptor socket);
  void ask(std::unique_ptr<ByteStream> greeted);
  void go_on_asking();
  bool wait(const Moved& moved);
  void on_answer();

  // With the other.
  void begin_punch(const CircuitAnswer& answer);
  void on_punched(Descriptor socket);
  void call_next_punched();
  void call_through_relay();
  void be_called(std::unique_ptr<ByteStream> ground, Duration patience, Way way);
  std::unique_ptr<ByteStream> end_to_end(std::unique_ptr<ByteStream> ground) const;
  void on_greeted(std::unique_ptr<ByteStream> stream, Way way);
  std::string remote_of(const ByteStream& stream, Way way) const;

  const std::shared_ptr<EventLoop> loop_;
  const MeetingTerms terms_;
  OnMet done_;  // Null once it is over.
  std::unique_ptr<ByteStream> circuit_;
  std::array<std::byte, kCircuitRequestBytes> request_{};
  std::array<std::byte, kCircuitAnswerBytes> answer_{};
  size_t num_asked_ = 0;
  size_t num_answered_ = 0;
  bool is_asking_ = false;
  uint32_t watched_ = 0;
  std::shared_ptr<Punch> punch_;
  std::deque<Descriptor> punched_;  // Not called yet.
  bool is_calling_ = false;         // One that was punched.
  bool is_punching_over_ = false;
  std::vector<std::weak_ptr<Greeting>> greetings_;
};

void Encounter::finish(Result<Met> result) {
  if (!done_) return;
  if (is_asking_ && circuit_) loop_->forget(circuit_->descriptor());
  is_asking_ = false;
  if (punch_) punch_->stop();
  for (const auto& weak : greetings_) {
    if (const auto greeting = weak.lock()) greeting->abandon();
  }
  punched_.clear();
  if (circuit_) circuit_->say_goodbye();
  circuit_.reset();
  std::exchange(done_, {})(std::move(result));
}

void Encounter::greet_relay(Descriptor socket) {
  if (!done_) return;
  auto stream = make_plain_stream(std::move(socket));
  if (terms_.trust) stream = terms_.trust->calling_stream(std::move(stream));
  greetings_.push_back(Greeting::begin_outbound(
      *loop_, std::move(stream), Plane::kCircuit, terms_.patience,
      [self = shared_from_this()](const Result<Hello>& hello, std::unique_ptr<ByteStream> greeted) {
        if (!hello) return self->fail(hello.error().message);
        if (const auto why = relay_objection(*greeted); !why.empty()) {
          return self->fail(std::string(why));
        }
        self->ask(std::move(greeted));
      }));
}

void Encounter::ask(std::unique_ptr<ByteStream> greeted) {
  circuit_ = std::move(greeted);
  const std::string local = local_address(circuit_->descriptor()).address().text();
  const bool fits = terms_.may_punch && local.size() <= kMaxCircuitAddressBytes &&
                    local.find('%') == std::string::npos;
  request_ = encode(CircuitRequest{
      .circuit = terms_.circuit, .calls = terms_.calls, .local = fits ? local : std::string()});
  is_asking_ = true;
  watched_ = EPOLLIN;
  loop_->watch(circuit_->descriptor(), watched_,
               [self = shared_from_this()](uint32_t /*ready*/) { self->go_on_asking(); });
  loop_->call_after(terms_.patience + kGrace, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->is_asking_) self->fail("the other side did not come");
  });
  go_on_asking();
}

bool Encounter::wait(const Moved& moved) {
  if (moved.is_done()) return false;
  if (moved.outcome == Moved::Outcome::kEnded) {
    fail(moved.reason.empty() ? "it ended the connection" : moved.reason);
    return true;
  }
  const uint32_t wanted = moved.outcome == Moved::Outcome::kWantRead ? EPOLLIN : EPOLLOUT;
  if (wanted != watched_) loop_->rewatch(circuit_->descriptor(), watched_ = wanted);
  return true;
}

void Encounter::go_on_asking() {
  const auto self = shared_from_this();
  while (is_asking_) {
    if (num_asked_ < request_.size()) {
      const std::array parts = {std::span<const std::byte>(request_).subspan(num_asked_)};
      const Moved moved = circuit_->write(parts);
      if (wait(moved)) return;
      num_asked_ += moved.num_bytes;
    } else if (num_answered_ < answer_.size()) {
      const Moved moved = circuit_->read(std::span<std::byte>(answer_).subspan(num_answered_));
      if (wait(moved)) return;
      num_answered_ += moved.num_bytes;
    } else {
      is_asking_ = false;
      loop_->forget(circuit_->descriptor());
      on_answer();
    }
  }
}

void Encounter::on_answer() {
  const auto answer = decode_circuit_answer(answer_);
  if (!answer) return fail("what it answers makes no sense");
  if (!answer->refusal.empty()) return fail(answer->refusal);
  const bool punches = terms_.may_punch && !answer->local.empty();
  if (punches) begin_punch(*answer);
  if (!terms_.calls) {
    // The caller may have to try all else before it comes this way.
    const Duration others = punches ? terms_.punch_patience + 2 * kPunchedGreeting : Duration{};
    return be_called(std::move(circuit_), terms_.patience + others, Way::kRelayed);
  }
  if (!punches) return call_through_relay();
  // Until then nothing else may hold it.
  loop_->call_after(terms_.punch_patience, [self = shared_from_this()] {
    if (!self->done_) return;
    self->is_punching_over_ = true;
    self->punch_->stop();
    self->punched_.clear();
    if (!self->is_calling_) self->call_through_relay();
  });
}

void Encounter::begin_punch(const CircuitAnswer& answer) {
  std::vector<SocketAddress> targets;
  for (const std::string& text : {answer.observed, answer.local}) {
    const auto address = check_address(text, terms_.any_address || terms_.trust != nullptr);
    const auto found = address ? numeric_address(*address) : std::nullopt;
    // The other end names its own: nobody is made to call a service of their own machine.
    const bool is_own = address && is_loopback(*address) && text != answer.observed &&
                        !is_loopback(*parse_address(answer.observed));
    if (found && !is_own) targets.push_back(*found);
  }
  uint64_t seed = terms_.calls ? 1 : 0;
  for (const std::byte one : terms_.circuit) seed = seed * 257 + std::to_integer<uint64_t>(one);
  punch_ = std::make_shared<Punch>(loop_, local_address(circuit_->descriptor()), targets, seed,
                                   [weak = weak_from_this()](Descriptor socket) {
                                     if (const auto self = weak.lock()) {
                                       self->on_punched(std::move(socket));
                                     }
                                   });
  punch_->start();
}

void Encounter::on_punched(Descriptor socket) {
  if (!done_) return;
  if (!terms_.calls) {
    return be_called(make_plain_stream(std::move(socket)), terms_.patience, Way::kPunched);
  }
  punched_.push_back(std::move(socket));
  call_next_punched();
}

void Encounter::call_next_punched() {
  if (is_calling_ || punched_.empty() || !done_) return;
  is_calling_ = true;
  auto stream = end_to_end(make_plain_stream(std::move(punched_.front())));
  punched_.pop_front();
  greetings_.push_back(Greeting::begin_outbound(
      *loop_, std::move(stream), terms_.plane, kPunchedGreeting,
      [self = shared_from_this()](const Result<Hello>& hello, std::unique_ptr<ByteStream> greeted) {
        self->is_calling_ = false;
        if (hello && self->terms_.objection(*hello, *greeted).empty()) {
          return self->on_greeted(std::move(greeted), Way::kPunched);
        }
        if (self->is_punching_over_) return self->call_through_relay();
        self->call_next_punched();
      }));
}

void Encounter::call_through_relay() {
  greetings_.push_back(Greeting::begin_outbound(
      *loop_, end_to_end(std::move(circuit_)), terms_.plane, terms_.patience,
      [self = shared_from_this()](const Result<Hello>& hello, std::unique_ptr<ByteStream> greeted) {
        if (!hello) return self->fail(hello.error().message);
        const std::string why = self->terms_.objection(*hello, *greeted);
        if (!why.empty()) return self->fail(why);
        self->on_greeted(std::move(greeted), Way::kRelayed);
      }));
}

void Encounter::be_called(std::unique_ptr<ByteStream> ground, Duration patience, Way way) {
  greetings_.push_back(
      Greeting::begin_inbound(*loop_, end_to_end(std::move(ground)), patience, terms_.objection,
                              [self = shared_from_this(), way](
                                  const Result<Hello>& hello, std::unique_ptr<ByteStream> greeted) {
                                if (hello) return self->on_greeted(std::move(greeted), way);
                                // Who answered at a punched address may be anybody; the other comes
                                // through the relay.
                                if (way == Way::kRelayed) self->fail(hello.error().message);
                              }));
}

std::unique_ptr<ByteStream> Encounter::end_to_end(std::unique_ptr<ByteStream> ground) const {
  if (!terms_.trust) return ground;
  return terms_.calls ? terms_.trust->calling_stream(std::move(ground))
                      : terms_.trust->called_stream(std::move(ground), /*takes_joins=*/false);
}

void Encounter::on_greeted(std::unique_ptr<ByteStream> stream, Way way) {
  std::string remote = remote_of(*stream, way);
  finish(Met{.stream = std::move(stream), .way = way, .remote = std::move(remote)});
}

std::string Encounter::remote_of(const ByteStream& stream, Way way) const {
  if (way == Way::kPunched) return remote_address(stream.descriptor()).address().text();
  const std::string name =
      stream.peer() ? printable(stream.peer()->peer.name) : std::string("a member");
  return fmt::format("{} through {}", name, terms_.relay.text());
}

}  // namespace

std::function<void()> begin_meeting(const std::shared_ptr<EventLoop>& loop, MeetingTerms terms,
                                    OnMet done) {
  const auto encounter = std::make_shared<Encounter>(loop, std::move(terms), std::move(done));
  encounter->start();
  return [loop, weak = std::weak_ptr(encounter)] {
    loop->post([weak] {
      if (const auto still = weak.lock()) still->fail("it was given up");
    });
  };
}

}  // namespace atl::net
