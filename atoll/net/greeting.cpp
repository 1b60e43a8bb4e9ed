#include "atoll/net/greeting.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <utility>

#include "atoll/base/name.h"

namespace atl::net {
namespace {
constexpr const char* kNoPeer = "it is no Atoll peer";
/// A caller in the clear hears nothing that it understands from a run that is encrypted.
constexpr const char* kNoPeerInTheClear =
    "it is no Atoll peer, or a run that is encrypted: join that by an invite";
}  // namespace

std::weak_ptr<Greeting> Greeting::begin_outbound(EventLoop& loop,
                                                 std::unique_ptr<ByteStream> stream, Plane plane,
                                                 Duration patience, Done done) {
  const auto greeting =
      std::make_shared<Greeting>(loop, std::move(stream), nullptr, std::move(done));
  greeting->out_ = encode(Hello{.plane = plane});
  greeting->start(patience);
  return greeting;
}

std::weak_ptr<Greeting> Greeting::begin_inbound(EventLoop& loop, std::unique_ptr<ByteStream> stream,
                                                Duration patience, Objection objection, Done done) {
  const auto greeting =
      std::make_shared<Greeting>(loop, std::move(stream), std::move(objection), std::move(done));
  greeting->start(patience);
  return greeting;
}

Greeting::Greeting(EventLoop& loop, std::unique_ptr<ByteStream> stream, Objection objection,
                   Done done)
    : loop_(loop),
      stream_(std::move(stream)),
      objection_(std::move(objection)),
      done_(std::move(done)),
      in_(kHeaderBytes) {}

void Greeting::start(Duration patience) {
  watched_ = EPOLLIN;
  loop_.watch(stream_->descriptor(), watched_,
              [self = shared_from_this()](uint32_t /*ready*/) { self->advance(); });
  loop_.call_after(patience, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->stream_) self->end(failure("no answer"));
  });
  advance();
}

void Greeting::advance() {
  const auto self = shared_from_this();
  while (stream_ && step()) {
  }
}

bool Greeting::step() {
  switch (phase_) {
    case Phase::kKeys: {
      if (!settle(stream_->greet())) return false;
      phase_ = is_inbound() ? Phase::kHearing : Phase::kSaying;
      return true;
    }
    case Phase::kSaying:
      return say();
    case Phase::kHearing:
      return hear();
  }
  return false;
}

std::string Greeting::why_ended(const Moved& moved) {
  // What the other side said before it hung up says more than that nothing could be written.
  std::array<std::byte, 1> ignored{};
  const Moved last = phase_ == Phase::kSaying ? stream_->read(ignored) : moved;
  const std::string& why = last.reason.empty() ? moved.reason : last.reason;
  return why.empty() ? no_peer() : why;
}

std::string Greeting::no_peer() const {
  return stream_->peer() || is_inbound() ? kNoPeer : kNoPeerInTheClear;
}

bool Greeting::settle(const Moved& moved) {
  switch (moved.outcome) {
    case Moved::Outcome::kDone:
      return true;
    case Moved::Outcome::kEnded:
      end(failure(why_ended(moved)));
      return false;
    case Moved::Outcome::kWantRead:
    case Moved::Outcome::kWantWrite:
      break;
  }
  const uint32_t wanted = moved.outcome == Moved::Outcome::kWantRead ? EPOLLIN : EPOLLOUT;
  if (wanted != watched_) loop_.rewatch(stream_->descriptor(), watched_ = wanted);
  return false;
}

bool Greeting::say() {
  while (num_said_ < out_.size()) {
    const std::array parts = {std::span<const std::byte>(out_).subspan(num_said_)};
    const Moved moved = stream_->write(parts);
    if (!settle(moved)) return false;
    num_said_ += moved.num_bytes;
  }
  if (verdict_) {
    end(*std::exchange(verdict_, {}));
    return false;
  }
  phase_ = Phase::kHearing;
  return true;
}

bool Greeting::hear() {
  while (num_heard_ < in_.size()) {
    const Moved moved = stream_->read(std::span(in_).subspan(num_heard_));
    if (!settle(moved)) return false;
    num_heard_ += moved.num_bytes;
  }
  const auto header =
      decode_header(std::span<const std::byte, kHeaderBytes>(in_.data(), kHeaderBytes));
  const bool may_be =
      header && (header->kind == SegmentKind::kHello || header->kind == SegmentKind::kRefusal);
  if (!may_be) {
    end(failure(no_peer()));
    return false;
  }
  if (in_.size() < kHeaderBytes + header->size) {
    in_.resize(kHeaderBytes + header->size);
    return true;
  }
  heard(*header, std::span<const std::byte>(in_).subspan(kHeaderBytes));
  return stream_ != nullptr;
}

void Greeting::heard(const SegmentHeader& header, std::span<const std::byte> body) {
  if (is_inbound()) return heard_caller(header, body);
  if (header.kind == SegmentKind::kRefusal) {
    const std::string reason(reinterpret_cast<const char*>(body.data()), body.size());
    return end(failure(printable(reason)));
  }
  const auto hello = decode_hello(body);
  if (!hello) return end(failure(kNoPeer));
  if (const std::string why = version_mismatch(*hello); !why.empty()) return end(failure(why));
  end(*hello);
}

void Greeting::heard_caller(const SegmentHeader& header, std::span<const std::byte> body) {
  const auto hello =
      header.kind == SegmentKind::kHello ? decode_hello(body) : std::optional<Hello>{};
  if (!hello) return end(failure(kNoPeer));
  std::string why = version_mismatch(*hello);
  if (why.empty()) why = objection_(*hello, *stream_);
  if (why.empty()) {
    out_ = encode(Hello{.plane = hello->plane});
    verdict_ = *hello;
  } else {
    // Of another version it hears ours, which it can judge by itself.
    out_ = hello->version == kProtocolVersion ? encode_refusal(why) : encode(Hello{});
    verdict_ = failure(why);
  }
  num_said_ = 0;
  phase_ = Phase::kSaying;
}

void Greeting::abandon() {
  if (!stream_) return;
  loop_.forget(stream_->descriptor());
  stream_.reset();
  done_ = {};
}

void Greeting::end(Result<Hello> result) {
  loop_.forget(stream_->descriptor());
  const Done done = std::exchange(done_, {});
  done(std::move(result), std::move(stream_));
}

}  // namespace atl::net
