#pragma once
// A connection as the HTTP library sees it, in the clear or encrypted, which ends by itself: at a
// deadline, after too many bytes, when it is told to stop. Private to atoll/net. For one thread.
#include <httplib.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/net/byte_stream.h"

namespace atl::net {

class LimitedStream final : public httplib::Stream {
 public:
  struct Limits {
    size_t bytes;   // That may be received, without what TLS adds.
    Time deadline;  // Of all, the greeting too.
  };

  /// Reads and writes end soon after `stopping` is true; null: nobody stops them. The socket does
  /// not block.
  LimitedStream(std::unique_ptr<ByteStream> stream, Limits limits, const Clock& clock,
                const std::atomic<bool>* stopping);

  /// Agrees on keys; before all else.
  Result<void> greet();
  /// Whose certificate was shown, if one was.
  const std::optional<identity::CertificateFacts>& peer() const { return stream_->peer(); }
  /// Of the other end, without its port.
  const std::string& remote_host() const { return remote_host_; }
  /// Why no more can be received; empty where that is not known.
  const std::string& fault() const { return fault_; }
  /// Nothing follows.
  void end();

  bool is_readable() const override { return begin_ < end_ || wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* out, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return stream_->descriptor(); }

 private:
  bool is_over() const;
  bool wait(short events) const;
  /// Tries until it is done, and waits in between for as long as the limits allow.
  Moved persist(const auto& attempt) const;

  const std::unique_ptr<ByteStream> stream_;
  const std::string remote_host_;
  size_t bytes_left_;
  const Time deadline_;
  const Clock& clock_;
  const std::atomic<bool>* const stopping_;
  std::array<std::byte, 4096> buffer_{};
  std::string fault_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

/// So that a read or write that cannot be done at once says so.
void set_nonblocking(int socket);

}  // namespace atl::net
