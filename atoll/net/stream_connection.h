#pragma once
// A connection over a byte stream: writes its pieces and reads the other side's on a loop, answers
// pings, and notices when nothing comes back any more. Private to atoll/net.
//
// Any thread may do what Connection offers; the rest happens on the loop. It is kept alive by the
// table of its transport, which hears of its end, and by what it has given the loop to do.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "atoll/net/byte_stream.h"
#include "atoll/net/connection.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/trust.h"

namespace atl::net {

/// A segment on its way to the stream: its header, then up to three stretches of memory.
struct OutgoingSegment {
  std::array<std::byte, kHeaderBytes> header{};
  Connection::OutPiece piece;
  bool is_piece = false;  // Else it is of the connection's own: a ping or its answer.
  size_t num_written = 0;

  size_t size() const { return kHeaderBytes + piece.size; }
};

class StreamConnection final : public Connection {
 public:
  /// Called once the socket is closed, on the loop (with `id`): nothing follows.
  using OnClosed = std::function<void(ConnectionId)>;

  /// A peer from which nothing comes and which takes nothing is Lost after twice `keepalive`; it is
  /// asked by a ping after once that.
  StreamConnection(ConnectionId id, Plane plane, std::string remote,
                   std::shared_ptr<ConnectionContext> context, EventLoop& loop, Duration keepalive,
                   OnClosed on_closed);
  ~StreamConnection() override = default;

  /// On the loop: the greeting is over. Opened, unless it has ended meanwhile. `remote` where the
  /// other end is known better now; `trust`: by which it is believed, null in the clear.
  void attach(std::unique_ptr<ByteStream> stream, bool inbound, Way way, std::string remote,
              std::shared_ptr<const Trust> trust);
  /// From any thread: it ends when the other side's certificate is not believed any more.
  void end_unless_believed();
  EventLoop& loop() { return loop_; }

 private:
  void write(const OutPiece& piece) override;
  void end_call() override;
  std::shared_ptr<StreamConnection> self();

  void on_ready(uint32_t ready);
  /// Writes until there is nothing to write, or no room.
  void flush();
  bool take_next_outgoing();
  void begin_outgoing(SegmentKind kind, OutPiece piece);
  bool write_some();
  /// Reads until nothing is there.
  void read_all();
  bool take_header();
  void take_body();
  void on_segment();
  void on_stream_end(const std::string& reason);
  void watch(bool wants_write);
  void look_for_silence();
  void shut_down();

  EventLoop& loop_;
  const Duration keepalive_;
  const OnClosed on_closed_;
  // What Connection has given to be written; taken over by the loop once is_staged_.
  OutPiece staged_;
  std::atomic<bool> is_staged_ = false;

  // Of the loop alone:
  std::unique_ptr<ByteStream> stream_;
  std::shared_ptr<const Trust> trust_;
  bool inbound_ = false;
  bool is_shut_ = false;
  bool is_deaf_ = false;            // A write has failed: it takes nothing any more.
  bool is_reading_posted_ = false;  // Reading goes on in the loop's next turn.
  uint32_t watched_ = 0;
  std::optional<OutgoingSegment> outgoing_;
  bool owes_pong_ = false;
  bool owes_ping_ = false;
  std::array<std::byte, kHeaderBytes> header_bytes_{};
  std::optional<SegmentHeader> header_;  // Of the segment that is being read.
  Bytes body_;
  size_t num_read_ = 0;  // Of the header, then of the body.
  Time last_sign_;       // That the other side lives.
  int unsent_bytes_ = 0;
};

}  // namespace atl::net
