#include "atoll/net/limited_stream.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(50);  // For being stopped.

}  // namespace

LimitedStream::LimitedStream(std::unique_ptr<ByteStream> stream, Limits limits, const Clock& clock,
                             const std::atomic<bool>* stopping)
    : stream_(std::move(stream)),
      remote_host_(remote_address(stream_->descriptor()).address().host),
      bytes_left_(limits.bytes),
      deadline_(limits.deadline),
      clock_(clock),
      stopping_(stopping) {}

Moved LimitedStream::persist(const auto& attempt) const {
  Moved moved{.outcome = Moved::Outcome::kWantRead};
  while (!is_over()) {  // Also where each attempt brings something.
    moved = attempt();
    const bool wants_to_read = moved.outcome == Moved::Outcome::kWantRead;
    if (!wants_to_read && moved.outcome != Moved::Outcome::kWantWrite) return moved;
    wait(wants_to_read ? POLLIN : POLLOUT);
  }
  return moved;
}

Result<void> LimitedStream::greet() {
  const Moved moved = persist([this] { return stream_->greet(); });
  if (moved.is_done()) return {};
  if (moved.outcome != Moved::Outcome::kEnded) return failure("it does not go on");
  return failure(moved.reason.empty() ? "it hung up" : moved.reason);
}

void LimitedStream::end() {
  stream_->say_goodbye();
  ::shutdown(stream_->descriptor(), SHUT_RDWR);
}

ssize_t LimitedStream::read(char* out, size_t size) {
  if (begin_ == end_) {
    const size_t most = std::min(buffer_.size(), bytes_left_);
    if (most == 0) return -1;
    const Moved moved =
        persist([&, this] { return stream_->read(std::span(buffer_).first(most)); });
    if (fault_.empty()) fault_ = moved.reason;  // The first says why.
    if (!moved.is_done()) return moved.outcome == Moved::Outcome::kEnded ? 0 : -1;
    begin_ = 0;
    end_ = moved.num_bytes;
    bytes_left_ -= end_;
  }
  const size_t count = std::min(size, end_ - begin_);
  std::memcpy(out, buffer_.data() + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t LimitedStream::write(const char* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> part = std::as_bytes(std::span(data, size));
  const Moved moved = persist([&, this] { return stream_->write(std::span(&part, 1)); });
  return moved.is_done() ? static_cast<ssize_t>(moved.num_bytes) : -1;
}

void LimitedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip = remote_host_;
  port = 0;  // Strangers choose it.
}

bool LimitedStream::is_over() const {
  return (stopping_ != nullptr && *stopping_) || clock_.now() >= deadline_;
}

bool LimitedStream::wait(short events) const {
  while (!is_over()) {
    const Duration patience = std::min(kPollInterval, Duration(deadline_ - clock_.now()));
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    pollfd entry{stream_->descriptor(), events, 0};
    if (::poll(&entry, 1, static_cast<int>(std::max<int64_t>(ms, 0))) > 0) return true;
  }
  return false;
}

void set_nonblocking(int socket) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL, 0) | O_NONBLOCK);
}

}  // namespace atl::net
