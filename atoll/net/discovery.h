#pragma once
// How an island finds its coordinator where the address that it knows does not answer, and both are
// on one LAN: it asks all machines there, by multicast, who coordinates the run; the coordinator
// answers with its port.
//
// Question and answer are of one length: nobody can make a beacon send more than was sent to it.
// They name the run by a digest over a number of the question's own and the authority's
// fingerprint, so that who does not know the fingerprint learns nothing from either. IPv4 only.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/base/hash.h"
#include "atoll/base/result.h"

namespace atl::net {

/// Of multicast within one organisation (RFC 2365); it goes through no router here (TTL 1).
inline constexpr const char* kDiscoveryGroup = "239.255.70.70";
inline constexpr uint16_t kDiscoveryPort = 7070;  // UDP.
inline constexpr int kMaxAnswersPerSecond = 20;

enum class NoticeKind : uint8_t { kQuestion = 1, kAnswer = 2 };

/// A datagram: magic, version, kind, port, number (16 bytes in all), and `run` (32).
struct Notice {
  NoticeKind kind = NoticeKind::kQuestion;
  uint16_t port = 0;    // Where the coordinator listens (TCP); 0 in a question.
  uint64_t number = 0;  // Of the question, by which its answers are known.
  Digest run{};         // Of all that stands before it, and the fingerprint.

  bool operator==(const Notice&) const = default;
};
inline constexpr size_t kNoticeBytes = 48;

/// With the digest that belongs to it. `fingerprint`: as identity/peer.h has it.
Notice notice_of(NoticeKind kind, uint16_t port, uint64_t number, std::string_view fingerprint);
Bytes encode(const Notice& notice);
/// Nothing unless it is one to the bit.
std::optional<Notice> decode_notice(std::span<const std::byte> bytes);
bool is_about(const Notice& notice, std::string_view fingerprint);

/// The coordinator's side: answers who asks for its run, on all interfaces, the machine's own
/// included, until it is destroyed. Several on one machine do not disturb each other.
class Beacon {
 public:
  /// `port`: where the coordinator listens. Fails where the system has no multicast. `clock` must
  /// outlive it.
  static Result<std::unique_ptr<Beacon>> start(std::string fingerprint, uint16_t port,
                                               const Clock& clock);
  virtual ~Beacon() = default;
};

/// The addresses "HOST:PORT" of all who say within `patience` that they coordinate the run. Blocks.
/// Anybody on the LAN who knows the fingerprint can answer, with any port: that gains them nothing,
/// as who is called there still has to prove by TLS that it is that run's coordinator. So try each
/// address, and let no failure of one stand for an answer of the coordinator.
std::vector<std::string> find_on_lan(std::string_view fingerprint, Duration patience,
                                     const Clock& clock);

}  // namespace atl::net
