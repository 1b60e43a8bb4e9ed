#include "atoll/net/discovery.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "atoll/base/descriptor.h"
#include "atoll/base/random.h"
#include "atoll/net/address.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/socket_address.h"
#include "atoll/net/token_bucket.h"

namespace atl::net {
namespace {

constexpr uint32_t kMagic = 0x44'4c'54'41;  // "ATLD"
constexpr uint8_t kVersion = 1;
constexpr size_t kMaxInterfaces = 16;  // Linux lets a socket be in 20 groups.
constexpr size_t kMaxAnswers = 16;
constexpr int kMaxReadAtOnce = 64;
/// A wireless link may come up after the coordinator.
constexpr Duration kBetweenLooks = std::chrono::seconds(10);
constexpr Duration kBetweenQuestions = std::chrono::milliseconds(300);  // One may be lost.

Bytes header(NoticeKind kind, uint16_t port, uint64_t number) {
  return ByteWriter().put(kMagic).put(kVersion).put(kind).put(port).put(number).take();
}

/// Those that are up and have an IPv4 address, the machine's own one included.
std::vector<int> interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  std::vector<int> indices;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const bool is_usable =
        (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & (IFF_MULTICAST | IFF_LOOPBACK)) != 0;
    const int index = static_cast<int>(::if_nametoindex(one->ifa_name));
    if (!is_usable || index == 0 || std::ranges::find(indices, index) != indices.end()) continue;
    if (indices.size() < kMaxInterfaces) indices.push_back(index);
  }
  ::freeifaddrs(found);
  return indices;
}

SocketAddress group_address() {
  sockaddr_in group{};
  group.sin_family = AF_INET;
  group.sin_port = htons(kDiscoveryPort);
  ::inet_pton(AF_INET, kDiscoveryGroup, &group.sin_addr);
  SocketAddress address{.size = sizeof group};
  std::memcpy(&address.storage, &group, sizeof group);
  return address;
}

Descriptor udp_socket() {
  return Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

struct Datagram {
  std::optional<Notice> notice;
  SocketAddress sender;
};

/// Nothing where none waits.
std::optional<Datagram> receive(int socket) {
  std::array<std::byte, kNoticeBytes + 1> bytes{};  // One that is longer is told by its last byte.
  Datagram datagram{.sender = {.size = sizeof(sockaddr_storage)}};
  const ssize_t size =
      ::recvfrom(socket, bytes.data(), bytes.size(), 0,
                 reinterpret_cast<sockaddr*>(&datagram.sender.storage), &datagram.sender.size);
  if (size < 0) return std::nullopt;
  datagram.notice = decode_notice(std::span(bytes).first(static_cast<size_t>(size)));
  return datagram;
}

void send(int socket, const Notice& notice, const SocketAddress& to) {
  const Bytes bytes = encode(notice);
  ::sendto(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL, to.get(), to.size);
}

class LanBeacon final : public Beacon {
 public:
  LanBeacon(std::string fingerprint, uint16_t port, Descriptor socket, const Clock& clock)
      : fingerprint_(std::move(fingerprint)),
        port_(port),
        socket_(std::move(socket)),
        answers_(kMaxAnswersPerSecond, kMaxAnswersPerSecond, clock.now()),
        loop_(clock) {
    join_groups();  // Before anybody is told that it is there.
    loop_.post([this] {
      loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t /*ready*/) { answer_all(); });
      look_again();
    });
  }
  ~LanBeacon() override { loop_.stop(); }
  LanBeacon(const LanBeacon&) = delete;
  LanBeacon& operator=(const LanBeacon&) = delete;

 private:
  void look_again() {
    join_groups();
    loop_.call_after(kBetweenLooks, [this] { look_again(); });
  }

  /// Where it is in the group already the system says so, and nothing changes.
  void join_groups() const {
    for (const int index : interfaces()) {
      ip_mreqn membership{};
      ::inet_pton(AF_INET, kDiscoveryGroup, &membership.imr_multiaddr);
      membership.imr_ifindex = index;
      ::setsockopt(socket_.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership);
    }
  }

  void answer_all() {
    for (int i = 0; i < kMaxReadAtOnce; ++i) {
      const auto datagram = receive(socket_.get());
      if (!datagram) return;
      if (datagram->notice) answer(*datagram->notice, datagram->sender);
    }
  }

  void answer(const Notice& question, const SocketAddress& asker) {
    if (question.kind != NoticeKind::kQuestion || !is_about(question, fingerprint_)) return;
    const Time now = loop_.now();
    if (answers_.wait(now, /*overdraft_bytes=*/-1) > Duration::zero()) return;
    answers_.take(now, 1);
    send(socket_.get(), notice_of(NoticeKind::kAnswer, port_, question.number, fingerprint_),
         asker);
  }

  const std::string fingerprint_;
  const uint16_t port_;
  const Descriptor socket_;
  TokenBucket answers_;  // Of the loop, like all that follows a question.
  EventLoop loop_;
};

/// To who listens on any of this machine's networks.
void ask(int socket, const Notice& question) {
  const SocketAddress group = group_address();
  for (const int index : interfaces()) {
    ip_mreqn from{};
    from.imr_ifindex = index;
    ::setsockopt(socket, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from);
    send(socket, question, group);
  }
}

/// Waits for a datagram.
void wait(int socket, Duration patience) {
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  pollfd readiness{.fd = socket, .events = POLLIN, .revents = 0};
  ::poll(&readiness, 1, static_cast<int>(std::clamp<int64_t>(whole, 0, 1000)));
}

}  // namespace

Notice notice_of(NoticeKind kind, uint16_t port, uint64_t number, std::string_view fingerprint) {
  return {.kind = kind,
          .port = port,
          .number = number,
          .run = Sha256().update(header(kind, port, number)).update(fingerprint).finish()};
}

Bytes encode(const Notice& notice) {
  return ByteWriter()
      .put_bytes(header(notice.kind, notice.port, notice.number))
      .put_bytes(notice.run)
      .take();
}

std::optional<Notice> decode_notice(std::span<const std::byte> bytes) {
  if (bytes.size() != kNoticeBytes) return std::nullopt;
  ByteReader reader(bytes);
  if (reader.get<uint32_t>() != kMagic || reader.get<uint8_t>() != kVersion) return std::nullopt;
  Notice notice{.kind = reader.get<NoticeKind>()};
  notice.port = reader.get<uint16_t>();
  notice.number = reader.get<uint64_t>();
  std::ranges::copy(reader.get_bytes(notice.run.size()), notice.run.begin());
  const bool is_question = notice.kind == NoticeKind::kQuestion && notice.port == 0;
  const bool is_answer = notice.kind == NoticeKind::kAnswer && notice.port != 0;
  if (!is_question && !is_answer) return std::nullopt;
  return notice;
}

bool is_about(const Notice& notice, std::string_view fingerprint) {
  return notice_of(notice.kind, notice.port, notice.number, fingerprint).run == notice.run;
}

Result<std::unique_ptr<Beacon>> Beacon::start(std::string fingerprint, uint16_t port,
                                              const Clock& clock) {
  Descriptor socket = udp_socket();
  const int on = 1;
  const int off = 0;
  // Bound to the group and not to an address of this machine: who is not on the LAN cannot ask.
  // Only what came over an interface that this socket joined is its own.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off);
  const SocketAddress group = group_address();
  if (socket.get() < 0 || ::bind(socket.get(), group.get(), group.size) != 0) {
    return failure(
        fmt::format("cannot listen at {} (UDP): {}", group.address().text(), std::strerror(errno)));
  }
  return std::make_unique<LanBeacon>(std::move(fingerprint), port, std::move(socket), clock);
}

std::vector<std::string> find_on_lan(std::string_view fingerprint, Duration patience,
                                     const Clock& clock) {
  const Descriptor socket = udp_socket();
  if (socket.get() < 0) return {};
  const Notice question = notice_of(NoticeKind::kQuestion, /*port=*/0, random_id(), fingerprint);
  std::vector<std::string> found;
  std::vector<std::string> on_this_machine;  // The last to try: others cannot go there.
  const Time end = clock.now() + patience;
  Time next_question = clock.now();
  for (Time now = next_question; now < end; now = clock.now()) {
    if (now >= next_question) {
      ask(socket.get(), question);
      next_question = now + kBetweenQuestions;
    }
    wait(socket.get(), std::min(end, next_question) - now);
    const auto datagram = receive(socket.get());
    if (!datagram || !datagram->notice) continue;
    const Notice& answer = *datagram->notice;
    if (answer.kind != NoticeKind::kAnswer || answer.number != question.number) continue;
    if (!is_about(answer, fingerprint)) continue;
    const Address address{.host = datagram->sender.address().host, .port = answer.port};
    auto& addresses = is_loopback(address) ? on_this_machine : found;
    const std::string text = address.text();
    if (std::ranges::find(addresses, text) == addresses.end()) addresses.push_back(text);
    if (found.size() + on_this_machine.size() == kMaxAnswers) break;
  }
  found.insert(found.end(), on_this_machine.begin(), on_this_machine.end());
  return found;
}

}  // namespace atl::net
