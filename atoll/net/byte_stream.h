#pragma once
// A connected socket, in the clear or encrypted (net/tls_stream.h), even twice: bytes in and out
// without ever waiting. Of one thread.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/identity/certificate.h"

namespace atl::net {

/// What an attempt to move bytes came to.
struct Moved {
  enum class Outcome : uint8_t {
    kDone,       // `num_bytes` > 0 were moved (for a greeting: it is complete).
    kWantRead,   // Nothing until the socket can be read,
    kWantWrite,  // or written.
    kEnded,      // The other side sends no more, or the connection broke: `reason` where known.
  };
  Outcome outcome = Outcome::kDone;
  size_t num_bytes = 0;
  std::string reason;

  bool is_done() const { return outcome == Outcome::kDone; }
};

class ByteStream {
 public:
  ByteStream() = default;
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  /// The socket's. What was read ahead lies in the stream, where epoll does not see it: who waits
  /// has read until nothing was there.
  virtual int descriptor() const = 0;

  /// Agrees on keys, before all else; called until it is done.
  virtual Moved greet() = 0;
  virtual Moved read(std::span<std::byte> out) = 0;
  /// The parts one behind the other, as far as there is room.
  virtual Moved write(std::span<const std::span<const std::byte>> parts) = 0;
  /// Tells the other side that nothing follows, if that can be done at once.
  virtual void say_goodbye() {}
  /// Who is at the other end, as its certificate says; nothing where it needs none.
  virtual const std::optional<identity::CertificateFacts>& peer() const = 0;
  /// Of an end that is called for several runs the one that the caller means, whose authority
  /// verified it; empty: the first.
  virtual std::string run() const { return ""; }
};

/// In the clear.
std::unique_ptr<ByteStream> make_plain_stream(Descriptor socket);

}  // namespace atl::net
