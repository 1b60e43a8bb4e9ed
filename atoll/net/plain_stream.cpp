#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "atoll/net/byte_stream.h"

namespace atl::net {
namespace {

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(Descriptor socket) : socket_(std::move(socket)) {}

  int descriptor() const override { return socket_.get(); }
  Moved greet() override { return {}; }

  Moved read(std::span<std::byte> out) override {
    return moved(::recv(descriptor(), out.data(), out.size(), 0), Moved::Outcome::kWantRead);
  }

  Moved write(std::span<const std::span<const std::byte>> parts) override {
    std::array<iovec, 4> vectors{};
    size_t count = 0;
    for (const auto part : parts) {
      if (part.empty() || count == vectors.size()) continue;
      vectors[count++] = {.iov_base = const_cast<std::byte*>(part.data()), .iov_len = part.size()};
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    return moved(::sendmsg(descriptor(), &message, MSG_NOSIGNAL), Moved::Outcome::kWantWrite);
  }

  const std::optional<identity::CertificateFacts>& peer() const override { return nobody_; }

 private:
  static Moved moved(ssize_t result, Moved::Outcome blocked) {
    if (result > 0) return {.num_bytes = static_cast<size_t>(result)};
    if (result == 0) return {.outcome = Moved::Outcome::kEnded};
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {.outcome = blocked};
    return {.outcome = Moved::Outcome::kEnded, .reason = std::strerror(errno)};
  }

  const Descriptor socket_;
  const std::optional<identity::CertificateFacts> nobody_;
};

}  // namespace

std::unique_ptr<ByteStream> make_plain_stream(Descriptor socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace atl::net
