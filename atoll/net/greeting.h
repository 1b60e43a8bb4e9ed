#pragma once
// The beginning of a connection: the two sides agree on keys, then say Hello. Until that is done
// nobody above has heard of the connection, and it has a deadline. On one loop.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/base/result.h"
#include "atoll/net/byte_stream.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/segment.h"

namespace atl::net {

class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  /// Their Hello and the stream behind it, or why there is none. Called once, on the loop; not when
  /// the loop ends before.
  using Done = std::function<void(Result<Hello>, std::unique_ptr<ByteStream>)>;
  /// Of an inbound one, once the caller has said Hello: why it is refused, or empty.
  using Objection = std::function<std::string(const Hello&, const ByteStream&)>;

  /// On the loop. The caller says Hello first.
  static std::weak_ptr<Greeting> begin_outbound(EventLoop& loop, std::unique_ptr<ByteStream> stream,
                                                Plane plane, Duration patience, Done done);
  static std::weak_ptr<Greeting> begin_inbound(EventLoop& loop, std::unique_ptr<ByteStream> stream,
                                               Duration patience, Objection objection, Done done);

  Greeting(EventLoop& loop, std::unique_ptr<ByteStream> stream, Objection objection, Done done);

  /// On the loop: it is of no use any more. Nothing is called.
  void abandon();

 private:
  enum class Phase : uint8_t { kKeys, kSaying, kHearing };

  void start(Duration patience);
  /// Goes on as far as it can without waiting.
  void advance();
  /// True when there is more to do at once.
  bool step();
  bool settle(const Moved& moved);
  std::string why_ended(const Moved& moved);
  std::string no_peer() const;
  bool say();
  bool hear();
  /// The other side's first segment is here.
  void heard(const SegmentHeader& header, std::span<const std::byte> body);
  void heard_caller(const SegmentHeader& header, std::span<const std::byte> body);
  void end(Result<Hello> result);
  bool is_inbound() const { return objection_ != nullptr; }

  EventLoop& loop_;
  std::unique_ptr<ByteStream> stream_;  // Null once it is over.
  const Objection objection_;           // Null in an outbound one.
  Done done_;
  Phase phase_ = Phase::kKeys;
  Bytes out_;  // What is still to be said.
  size_t num_said_ = 0;
  Bytes in_;  // Of the other side's first segment.
  size_t num_heard_ = 0;
  std::optional<Result<Hello>> verdict_;  // Known, and to be told once all is said.
  uint32_t watched_ = 0;
};

}  // namespace atl::net
