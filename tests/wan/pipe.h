#pragma once
// One direction of an emulated access link: loss, a bounded queue in front of a line with a rate,
// then a delay. Pure: time comes in, packets come out. No clock, no device; one owner.
//
//   push -> lost? -> cut? -> no room? -> [waiting: until the line has sent it] -> [flying: delay]
//   -> pop
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "atoll/base/clock.h"

namespace atl::wan {

struct PipeOptions {
  double bits_per_second = 0;       // Of IP bytes; 0 = no limit.
  Duration delay{};                 // From the end of sending to arrival.
  double loss = 0;                  // Share of packets, in [0, 1].
  int64_t queue_bytes = 256 << 10;  // Waiting for the line; a packet that does not fit is dropped.
  int64_t burst_bytes = 3000;       // Depth of the token bucket: what an idle line sends at once.
};

/// What became of the packets pushed so far.
struct PipeCounts {
  int64_t packets = 0;  // Accepted.
  int64_t bytes = 0;    // Accepted.
  int64_t lost = 0;     // By chance.
  int64_t full = 0;     // No room in the queue.
  int64_t cut = 0;      // The link was cut.
};

struct Packet {
  size_t to = 0;  // Index of the destination host.
  std::vector<std::byte> bytes;
  Time arrived{};  // Set by pop().
};

class Pipe {
 public:
  /// Whether packet number i is lost is a pure function of (seed, stream, i), not of timing.
  Pipe(const PipeOptions& options, uint64_t seed, uint64_t stream);

  void push(Time now, Packet packet);
  /// The next packet that has arrived by `now`, in the order of push().
  std::optional<Packet> pop(Time now);
  /// When pop() has something next; none while nothing is under way.
  std::optional<Time> next_arrival() const;

  /// Drops what is under way and all that follows, until restore().
  void cut();
  void restore() { is_cut_ = false; }
  /// For packets pushed from now on; they never overtake those under way.
  void set(const PipeOptions& options) { options_ = options; }
  const PipeOptions& options() const { return options_; }
  const PipeCounts& counts() const { return counts_; }

 private:
  struct UnderWay {
    Time sent;     // The line has sent its last byte.
    Time arrival;  // sent + delay.
    Packet packet;
  };
  void drain_queue(Time now);

  PipeOptions options_;
  uint64_t seed_;
  uint64_t stream_;
  uint64_t num_pushed_ = 0;
  bool is_cut_ = false;
  Time line_free_{};        // When the line would have sent everything accepted, without a bucket.
  size_t num_waiting_ = 0;  // The last ones of under_way_: not yet sent.
  int64_t waiting_bytes_ = 0;
  std::deque<UnderWay> under_way_;
  PipeCounts counts_;
};

}  // namespace atl::wan
