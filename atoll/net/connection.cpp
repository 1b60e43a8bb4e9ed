#include "atoll/net/connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/hash.h"

namespace atl::net {
int64_t ConnectionContext::wire_bytes(size_t data_bytes) const {
  const size_t size = data_bytes + kHeaderBytes;
  const size_t num_records = (size + kRecordBytes - 1) / kRecordBytes;
  return static_cast<int64_t>(size + num_records * record_overhead);
}

Connection::Connection(ConnectionId id, Plane plane, std::string remote,
                       std::shared_ptr<ConnectionContext> context)
    : id_(id),
      plane_(plane),
      remote_(std::move(remote)),
      context_(std::move(context)),
      max_queued_bytes_(is_brief(plane) ? context_->queue_bytes : context_->bulk_queue_bytes),
      max_frame_bytes_(plane == Plane::kJoin ? kMaxJoinFrameBytes : kMaxLaneFrameBytes) {}

Sent Connection::send(SharedFrame frame) {
  ATOLL_CHECK(frame.size() <= max_frame_bytes_, "the frame is too long");
  const MutexLock lock(mutex_);
  if (state_ == State::kOver || is_closing_) return Sent::kClosed;
  if (queued_bytes_ > 0 && queued_bytes_ + frame.size() > max_queued_bytes_) {
    is_refused_ = true;
    return Sent::kFull;
  }
  queued_bytes_ += frame.size();
  queue_.push_back(std::make_shared<const SharedFrame>(std::move(frame)));
  pump();
  return Sent::kAccepted;
}

void Connection::close() {
  const MutexLock lock(mutex_);
  if (is_closing_ || state_ == State::kOver) return;
  is_closing_ = true;
  pump();
}

void Connection::end(const std::string& reason, bool all_arrived) {
  if (!stop()) return;
  emit_lost(reason, all_arrived);
  end_call();
}

bool Connection::is_closing() {
  const MutexLock lock(mutex_);
  return is_closing_;
}

bool Connection::is_over() {
  const MutexLock lock(mutex_);
  return state_ == State::kOver;
}

void Connection::on_opened(bool inbound,
                           const std::optional<identity::CertificateFacts>& certificate, Way way,
                           const std::string& run) {
  if (!is_closing()) emit(Opened{id_, inbound, plane_, remote_, certificate, way, run});
  const MutexLock lock(mutex_);
  if (state_ != State::kOpening) return;
  state_ = State::kOpen;
  pump();
}

bool Connection::stop() {
  const MutexLock lock(mutex_);
  if (state_ == State::kOver) return false;
  state_ = State::kOver;
  queue_.clear();
  return true;
}

std::string Connection::reason_unless_closing(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (!is_closing_) return reason;
  return goodbye_sent_ ? "closed by this side" : "closed by this side, what was queued is lost";
}

void Connection::emit_lost(const std::string& reason, bool all_arrived) {
  emit(Lost{id_, reason, all_arrived});
}

void Connection::emit(Event event) {
  const MutexLock lock(emit_mutex_);
  if (lost_emitted_) return;
  lost_emitted_ = std::holds_alternative<Lost>(event);
  if (!context_->muted) context_->sink(std::move(event));
}

size_t Connection::max_piece_bytes() const {
  return context_->pacer.is_limited() ? kPacedPieceBytes : kMaxPieceBytes;
}

Connection::OutPiece Connection::next_piece() const {
  if (queue_.empty()) return {.goodbye = true};
  const auto& frame = queue_.front();
  const size_t rest = frame->size() - position_;
  const bool last = rest <= max_piece_bytes();
  return {.frame = frame,
          .begin = position_,
          .size = std::min(rest, max_piece_bytes()),
          .last = last,
          .checksum = last ? xxh3(frame->parts()) : 0};
}

void Connection::pump() {
  if (state_ != State::kOpen || is_writing_ || is_waiting_ || goodbye_sent_) return;
  if (queue_.empty() && !is_closing_) return;
  if (!context_->pacer.is_limited()) {
    write_next_piece();
    return;
  }
  is_waiting_ = true;
  const size_t rest = queue_.empty() ? 0 : queue_.front()->size() - position_;
  context_->pacer.request_turn(plane_, context_->wire_bytes(std::min(rest, max_piece_bytes())),
                               [self = shared_from_this()] {
                                 const MutexLock lock(self->mutex_);
                                 self->is_waiting_ = false;
                                 if (self->state_ == State::kOpen) self->write_next_piece();
                               });
}

void Connection::write_next_piece() {
  const OutPiece piece = next_piece();
  goodbye_sent_ = piece.goodbye;
  is_writing_ = true;
  written_bytes_ = piece.size;
  context_->bytes_sent += context_->wire_bytes(piece.size);
  write(piece);
}

void Connection::on_written(bool is_written) {
  bool is_writable = false;
  {
    const MutexLock lock(mutex_);
    is_writing_ = false;
    if (!is_written || state_ != State::kOpen || goodbye_sent_) return;
    queued_bytes_ -= written_bytes_;
    position_ += written_bytes_;
    if (position_ == queue_.front()->size()) {
      queue_.pop_front();
      position_ = 0;
    }
    if (is_refused_ && !is_closing_ && queued_bytes_ <= max_queued_bytes_ / 2) {
      is_refused_ = false;
      is_writable = true;
    }
    pump();
  }
  if (is_writable) emit(Writable{id_});
}

void Connection::on_piece(Piece piece) {
  context_->bytes_received += context_->wire_bytes(piece.data.size());
  if (piece.goodbye) {
    end(reason_unless_closing("closed by the other side"), /*all_arrived=*/incoming_.empty());
    return;
  }
  const bool is_last = piece.last;
  if (const std::string wrong = add_to_frame(std::move(piece)); !wrong.empty()) {
    end(fmt::format("{} sent {}", remote_, wrong));
    return;
  }
  if (!is_last) return;
  Bytes frame;
  std::swap(frame, incoming_);
  {
    const MutexLock lock(mutex_);
    if (is_closing_ || state_ == State::kOver) return;
  }
  emit(Received{id_, std::move(frame)});
}

std::string Connection::add_to_frame(Piece piece) {
  if (piece.data.empty() && !piece.last) return "an empty piece of a frame";
  if (incoming_.size() + piece.data.size() > max_frame_bytes_) {
    return fmt::format("a frame of more than {} bytes", max_frame_bytes_);
  }
  if (incoming_.empty()) {
    incoming_ = std::move(piece.data);
  } else {
    incoming_.insert(incoming_.end(), piece.data.begin(), piece.data.end());
  }
  if (piece.last && xxh3(incoming_.data(), incoming_.size()) != piece.checksum) {
    return fmt::format("a frame of {} bytes with a wrong checksum", incoming_.size());
  }
  return {};
}

}  // namespace atl::net
