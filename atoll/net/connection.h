#pragma once
// One side of a connection, apart from how pieces travel: queues frames within a bound, cuts them
// into pieces, asks for turns, checks and joins what arrives, and reports Lost exactly once, last.
//
// Threads: any thread may send() and close(); the subclass calls the on_*() functions, those of
// reading one at a time. Two locks: mutex_ guards the state; emit_mutex_ makes events one at a time
// and is never held together with mutex_, so a sink may share a lock with the callers of send().
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/mutex.h"
#include "atoll/net/pacer.h"
#include "atoll/net/segment.h"
#include "atoll/net/stripe_frame.h"
#include "atoll/net/transport.h"

namespace atl::net {

/// What all connections of a transport share.
struct ConnectionContext {
  ConnectionContext(Transport::Sink transport_sink, double rate, const Clock& clock, size_t queue,
                    size_t bulk_queue, size_t overhead)
      : sink(std::move(transport_sink)),
        queue_bytes(queue),
        bulk_queue_bytes(bulk_queue),
        record_overhead(overhead),
        pacer(rate, clock) {}

  /// What a piece of that many bytes is on the wire: with its header, and with what TLS adds to
  /// each record. TCP and IP, 2 to 3 %, are not in it.
  int64_t wire_bytes(size_t data_bytes) const;

  const Transport::Sink sink;
  const size_t queue_bytes;
  const size_t bulk_queue_bytes;    // Of each lane.
  const size_t record_overhead;     // What TLS adds to each kRecordBytes; 0 in the clear.
  std::atomic<bool> muted = false;  // The transport is being destroyed.
  std::atomic<int64_t> bytes_sent = 0;
  std::atomic<int64_t> bytes_received = 0;
  Pacer pacer;
};

/// The most that one record of TLS holds.
constexpr size_t kRecordBytes = size_t{16} << 10;

/// Largest frame with what striping adds to it.
constexpr size_t kMaxLaneFrameBytes = kMaxFrameBytes + kStripeTrailerBytes;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// As it is received.
  struct Piece {
    Bytes data;
    bool last = false;
    uint64_t checksum = 0;
    bool goodbye = false;
  };
  /// As it is sent: bytes [begin, begin + size) of the frame.
  struct OutPiece {
    std::shared_ptr<const SharedFrame> frame;  // Null in a goodbye.
    size_t begin = 0;
    size_t size = 0;
    bool last = false;
    uint64_t checksum = 0;
    bool goodbye = false;
  };

  Connection(ConnectionId id, Plane plane, std::string remote,
             std::shared_ptr<ConnectionContext> context);
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ConnectionId id() const { return id_; }
  const std::string& remote() const { return remote_; }

  Sent send(SharedFrame frame);
  Sent send(Bytes frame) { return send(SharedFrame{.head = std::move(frame)}); }
  /// Sends what is queued, then says goodbye.
  void close();
  /// Ends it now, because of `reason`.
  void end(const std::string& reason, bool all_arrived = false);
  bool is_over();

 protected:
  /// From here on pieces may be written.
  void on_opened(bool inbound, const std::optional<identity::CertificateFacts>& certificate,
                 Way way = Way::kDirect, const std::string& run = {});
  /// Before it is opened: the other end is known better now.
  void set_remote(std::string remote) { remote_ = std::move(remote); }
  void on_piece(Piece piece);
  /// The piece given to write() is on its way (or is not: then the call is about to end).
  void on_written(bool is_written);
  /// No more pieces can be written. True the first time.
  bool stop();
  void emit_lost(const std::string& reason, bool all_arrived = false);
  /// "closed by this side" if that is why the call ended, else `reason`.
  std::string reason_unless_closing(const std::string& reason);
  bool is_closing();
  /// Of frames of either side.
  size_t max_frame_bytes() const { return max_frame_bytes_; }

 private:
  enum class State : uint8_t { kOpening, kOpen, kOver };

  /// Starts to send the piece; on_written() follows.
  virtual void write(const OutPiece& piece) ATOLL_REQUIRES(mutex_) = 0;
  /// Ends the call after stop(): nothing more is read or written.
  virtual void end_call() = 0;

  void emit(Event event);
  /// Writes the next piece or asks for its turn.
  void pump() ATOLL_REQUIRES(mutex_);
  void write_next_piece() ATOLL_REQUIRES(mutex_);
  size_t max_piece_bytes() const;
  OutPiece next_piece() const ATOLL_REQUIRES(mutex_);
  std::string add_to_frame(Piece piece);

  const ConnectionId id_;
  const Plane plane_;
  std::string remote_;
  const std::shared_ptr<ConnectionContext> context_;
  const size_t max_queued_bytes_;
  const size_t max_frame_bytes_;

  Mutex mutex_;
  State state_ ATOLL_GUARDED_BY(mutex_) = State::kOpening;
  std::deque<std::shared_ptr<const SharedFrame>> queue_ ATOLL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t position_ ATOLL_GUARDED_BY(mutex_) = 0;  // In the first frame of the queue.
  size_t written_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_writing_ ATOLL_GUARDED_BY(mutex_) = false;
  bool is_waiting_ ATOLL_GUARDED_BY(mutex_) = false;  // For a turn.
  bool is_refused_ ATOLL_GUARDED_BY(mutex_) = false;  // A send was kFull: Writable is owed.
  bool is_closing_ ATOLL_GUARDED_BY(mutex_) = false;
  bool goodbye_sent_ ATOLL_GUARDED_BY(mutex_) = false;

  Mutex emit_mutex_;
  bool lost_emitted_ ATOLL_GUARDED_BY(emit_mutex_) = false;

  Bytes incoming_;  // Pieces of a frame that has not ended. Of the reading side alone.
};

}  // namespace atl::net
