#include "atoll/net/stream_connection.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

namespace atl::net {
namespace {

/// What one connection may move before others of its loop have their turn.
constexpr size_t kTurnBytes = size_t{1} << 20;
constexpr int kLooksPerKeepalive = 4;

/// The first `count` parts behind `skip` bytes of all.
std::array<std::span<const std::byte>, 4> behind(std::array<std::span<const std::byte>, 4> parts,
                                                 size_t skip) {
  for (auto& part : parts) {
    const size_t here = std::min(skip, part.size());
    part = part.subspan(here);
    skip -= here;
  }
  return parts;
}

}  // namespace

StreamConnection::StreamConnection(ConnectionId id, Plane plane, std::string remote,
                                   std::shared_ptr<ConnectionContext> context, EventLoop& loop,
                                   Duration keepalive, OnClosed on_closed)
    : Connection(id, plane, std::move(remote), std::move(context)),
      loop_(loop),
      keepalive_(keepalive),
      on_closed_(std::move(on_closed)) {}

std::shared_ptr<StreamConnection> StreamConnection::self() {
  return std::static_pointer_cast<StreamConnection>(shared_from_this());
}

void StreamConnection::attach(std::unique_ptr<ByteStream> stream, bool inbound, Way way,
                              std::string remote, std::shared_ptr<const Trust> trust) {
  if (is_shut_) return;  // It has ended while it was opening.
  if (!remote.empty()) set_remote(std::move(remote));
  stream_ = std::move(stream);
  trust_ = std::move(trust);
  inbound_ = inbound;
  last_sign_ = loop_.now();
  watched_ = EPOLLIN;
  loop_.watch(stream_->descriptor(), watched_,
              [connection = self()](uint32_t ready) { connection->on_ready(ready); });
  on_opened(inbound, stream_->peer(), way, trust_ ? trust_->run() : "");
  look_for_silence();
  read_all();  // What came with the greeting lies in the stream, where epoll does not see it.
}

void StreamConnection::end_unless_believed() {
  loop_.post([connection = self()] {
    if (!connection->stream_ || !connection->trust_ || !connection->stream_->peer()) return;
    const std::string why = connection->trust_->objection(*connection->stream_->peer());
    if (!why.empty()) connection->end(fmt::format("{} was cut off: {}", connection->remote(), why));
  });
}

void StreamConnection::write(const OutPiece& piece) {
  staged_ = piece;
  is_staged_.store(true, std::memory_order_release);
  loop_.post([connection = self()] { connection->flush(); });
}

void StreamConnection::end_call() {
  loop_.post([connection = self()] { connection->shut_down(); });
}

void StreamConnection::shut_down() {
  if (std::exchange(is_shut_, true)) return;
  if (stream_) {
    stream_->say_goodbye();
    loop_.forget(stream_->descriptor());
    stream_.reset();
  }
  outgoing_.reset();
  staged_ = {};
  on_closed_(id());
}

void StreamConnection::on_ready(uint32_t ready) {
  // Where only an error is there reading finds out which.
  if ((ready & EPOLLOUT) != 0) flush();
  if (stream_ && (ready & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read_all();
  if (stream_ && outgoing_) flush();  // It may have waited for something to be read.
}

void StreamConnection::watch(bool wants_write) {
  const uint32_t wanted = EPOLLIN | (wants_write ? EPOLLOUT : 0U);
  if (wanted != watched_) loop_.rewatch(stream_->descriptor(), watched_ = wanted);
}

void StreamConnection::begin_outgoing(SegmentKind kind, OutPiece piece) {
  outgoing_.emplace();
  outgoing_->header = encode(SegmentHeader{
      .kind = kind, .size = static_cast<uint32_t>(piece.size), .checksum = piece.checksum});
  outgoing_->piece = std::move(piece);
}

bool StreamConnection::take_next_outgoing() {
  if (outgoing_) return true;
  if (std::exchange(owes_pong_, false)) {
    begin_outgoing(SegmentKind::kPong, {});
  } else if (std::exchange(owes_ping_, false)) {
    begin_outgoing(SegmentKind::kPing, {});
  } else if (is_staged_.load(std::memory_order_acquire)) {
    OutPiece piece = std::exchange(staged_, {});
    is_staged_.store(false, std::memory_order_relaxed);
    const SegmentKind kind = piece.goodbye ? SegmentKind::kGoodbye
                             : piece.last  ? SegmentKind::kLastPiece
                                           : SegmentKind::kPiece;
    begin_outgoing(kind, std::move(piece));
    outgoing_->is_piece = true;
  }
  return outgoing_.has_value();
}

bool StreamConnection::write_some() {
  OutgoingSegment& out = *outgoing_;
  std::array<std::span<const std::byte>, 4> parts = {out.header};
  if (out.piece.frame) {
    // The piece's stretch of the frame: what is before it is skipped, what is behind is cut off.
    size_t skip = out.piece.begin;
    size_t left = out.piece.size;
    size_t count = 1;
    for (const auto part : out.piece.frame->parts()) {
      const size_t here = std::min(skip, part.size());
      skip -= here;
      parts[count] = part.subspan(here, std::min(left, part.size() - here));
      left -= parts[count++].size();
    }
  }
  const auto rest = behind(parts, out.num_written);
  const Moved moved = stream_->write(rest);
  switch (moved.outcome) {
    case Moved::Outcome::kDone:
      out.num_written += moved.num_bytes;
      return true;
    case Moved::Outcome::kWantRead:  // TLS is busy with itself: reading brings it on.
    case Moved::Outcome::kWantWrite:
      watch(moved.outcome == Moved::Outcome::kWantWrite);
      return false;
    case Moved::Outcome::kEnded:
      is_deaf_ = true;  // What is read now may ask for an answer: reading must not end here again.
      read_all();       // A goodbye may lie there, or a reason.
      if (stream_) on_stream_end(moved.reason);
      return false;
  }
  return false;
}

void StreamConnection::flush() {
  size_t num_moved = 0;
  while (stream_ && !is_deaf_ && take_next_outgoing()) {
    const size_t before = outgoing_->num_written;
    if (!write_some()) return;
    num_moved += outgoing_->num_written - before;
    if (outgoing_->num_written == outgoing_->size()) {
      const bool is_piece = outgoing_->is_piece;
      outgoing_.reset();  // Lets go of the frame.
      if (is_piece) on_written(true);
    }
    if (num_moved >= kTurnBytes) {
      watch(/*wants_write=*/true);
      return;
    }
  }
  if (stream_ && !is_deaf_) watch(/*wants_write=*/false);
}

void StreamConnection::read_all() {
  size_t num_moved = 0;
  while (stream_ && !is_over()) {
    const auto rest = header_ ? std::span(body_).subspan(num_read_)
                              : std::span<std::byte>(header_bytes_).subspan(num_read_);
    const Moved moved = stream_->read(rest);
    if (moved.outcome == Moved::Outcome::kEnded) return on_stream_end(moved.reason);
    if (!moved.is_done()) {
      // TLS has to say something first, which the socket does not take yet.
      if (moved.outcome == Moved::Outcome::kWantWrite) watch(/*wants_write=*/true);
      break;
    }
    last_sign_ = loop_.now();
    num_read_ += moved.num_bytes;
    num_moved += moved.num_bytes;
    if (moved.num_bytes == rest.size()) {
      if (header_) {
        on_segment();
      } else if (!take_header()) {
        return end(fmt::format("{} sent what is no segment", remote()));
      }
    }
    if (num_moved >= kTurnBytes) {  // What TLS has read already epoll does not see.
      if (!std::exchange(is_reading_posted_, true)) {
        loop_.post([connection = self()] {
          connection->is_reading_posted_ = false;
          connection->read_all();
        });
      }
      return;
    }
  }
}

bool StreamConnection::take_header() {
  header_ = decode_header(header_bytes_);
  num_read_ = 0;
  if (!header_) return false;
  if (header_->kind == SegmentKind::kHello || header_->kind == SegmentKind::kRefusal) return false;
  if (header_->size > max_frame_bytes()) return false;  // Before there is memory for it.
  body_.resize(header_->size);
  if (body_.empty()) on_segment();
  return true;
}

void StreamConnection::on_segment() {
  const SegmentHeader header = *std::exchange(header_, {});
  num_read_ = 0;
  switch (header.kind) {
    case SegmentKind::kPing:
      owes_pong_ = true;
      flush();
      return;
    case SegmentKind::kPong:
      return;  // It was a sign of life, which is all that it is for.
    case SegmentKind::kGoodbye:
      return on_piece({.goodbye = true});
    default:
      return on_piece({.data = std::exchange(body_, {}),
                       .last = header.kind == SegmentKind::kLastPiece,
                       .checksum = header.checksum});
  }
}

void StreamConnection::on_stream_end(const std::string& reason) {
  const std::string why = reason.empty() ? "it ended or the network failed" : reason;
  end(reason_unless_closing(
      fmt::format("connection {} {} lost: {}", inbound_ ? "from" : "to", remote(), why)));
}

void StreamConnection::look_for_silence() {
  if (!stream_) return;
  const Time now = loop_.now();
  // A line that takes what is sent is alive, however long that is on its way. That the last of it
  // was taken, a ping perhaps, says nothing of the process there.
  int unsent = 0;
  if (::ioctl(stream_->descriptor(), SIOCOUTQ, &unsent) == 0 && unsent != unsent_bytes_) {
    if (unsent > 0 || outgoing_) last_sign_ = now;
    unsent_bytes_ = unsent;
  }
  const Duration silence = now - last_sign_;
  if (silence >= 2 * keepalive_) {
    return end(fmt::format("connection {} {} lost: no answer for {:.1f} s",
                           inbound_ ? "from" : "to", remote(), seconds(silence)));
  }
  if (silence >= keepalive_ && !outgoing_) {
    owes_ping_ = true;
    flush();
  }
  loop_.call_after(keepalive_ / kLooksPerKeepalive, [weak = std::weak_ptr(self())] {
    if (const auto connection = weak.lock()) connection->look_for_silence();
  });
}

}  // namespace atl::net
