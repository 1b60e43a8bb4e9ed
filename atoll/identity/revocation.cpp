#include "atoll/identity/revocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/name.h"
#include "atoll/identity/issue.h"

namespace atl::identity {
namespace {

constexpr uint32_t kMagic = 0x4C525441;  // "ATRL"
constexpr uint16_t kVersion = 1;
constexpr std::string_view kDomain = "atoll revocation list 1";
constexpr size_t kMaxSubjectBytes = 64;
constexpr size_t kMaxSerialDigits = 40;
constexpr size_t kMaxSignatureBytes = 128;

auto place_of(const Revocation& entry) { return std::tie(entry.kind, entry.subject); }

bool is_serial(std::string_view text) {
  return !text.empty() && text.size() <= kMaxSerialDigits && text.size() % 2 == 0 &&
         std::ranges::all_of(
             text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_subject(const Revocation& entry) {
  return entry.kind == Revocation::Kind::kSerial ? is_serial(entry.subject)
                                                 : is_peer_name(entry.subject);
}

bool is_in_calendar(WallTime time) { return time >= WallTime() && time <= kLastWallTime; }

/// Throws InputError, as a ByteReader does.
RevocationList read_list(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kMagic) throw InputError("it is no revocation list");
  if (in.get<uint16_t>() != kVersion) throw InputError("it is of another version");
  RevocationList list;
  list.run = in.get_string(kMaxSubjectBytes);
  if (!is_fingerprint(list.run)) throw InputError("it names no run");
  list.number = in.get<uint64_t>();
  const auto num_entries = in.get<uint32_t>();
  if (num_entries > kMaxRevocations) throw InputError("it has too many entries");
  for (uint32_t i = 0; i < num_entries; ++i) {
    Revocation entry;
    const auto kind = in.get<uint8_t>();
    if (kind > static_cast<uint8_t>(Revocation::Kind::kPeer)) throw InputError("unknown kind");
    entry.kind = static_cast<Revocation::Kind>(kind);
    entry.subject = in.get_string(kMaxSubjectBytes);
    entry.when = WallTime(std::chrono::seconds(in.get<int64_t>()));
    if (!is_subject(entry) || !is_in_calendar(entry.when)) throw InputError("an entry is wrong");
    if (!list.entries.empty() && place_of(list.entries.back()) >= place_of(entry)) {
      throw InputError("its entries are not in order");
    }
    list.entries.push_back(std::move(entry));
  }
  in.expect_end();
  return list;
}

}  // namespace

bool RevocationList::is_revoked(const CertificateFacts& facts) const {
  const WallTime issued = facts.not_before + kBackdated;
  return std::ranges::any_of(entries, [&](const Revocation& entry) {
    if (entry.kind == Revocation::Kind::kSerial) return entry.subject == facts.serial;
    // A coordinator's certificate is no member's, whatever name it has.
    return facts.peer.role != Role::kCoordinator && entry.subject == facts.peer.name &&
           issued <= entry.when;
  });
}

void RevocationList::add(Revocation revocation) {
  if (!is_subject(revocation) || !is_in_calendar(revocation.when)) {
    throw InputError(
        fmt::format("cannot revoke '{}': that is no member's name and no serial number",
                    printable(revocation.subject)));
  }
  const auto at = std::ranges::lower_bound(entries, place_of(revocation), {},
                                           [](const Revocation& entry) { return place_of(entry); });
  if (at != entries.end() && place_of(*at) == place_of(revocation)) {
    at->when = std::max(at->when, revocation.when);
    return;
  }
  if (entries.size() >= kMaxRevocations) {
    throw InputError(fmt::format("the revocation list is full ({} entries)", kMaxRevocations));
  }
  entries.insert(at, std::move(revocation));
}

void RevocationList::forget_before(WallTime time) {
  std::erase_if(entries, [&](const Revocation& entry) { return entry.when < time; });
}

Bytes encode(const RevocationList& list) {
  ByteWriter out;
  out.put(kMagic).put(kVersion).put_string(list.run).put(list.number);
  out.put(static_cast<uint32_t>(list.entries.size()));
  for (const Revocation& entry : list.entries) {
    out.put(entry.kind)
        .put_string(entry.subject)
        .put(static_cast<int64_t>(entry.when.time_since_epoch().count()));
  }
  return out.take();
}

Result<RevocationList> decode_revocation_list(std::span<const std::byte> bytes) {
  try {
    if (bytes.size() > kMaxRevocationBytes) throw InputError("it is too long");
    return read_list(bytes);
  } catch (const InputError& error) {
    return failure(fmt::format("not a valid revocation list: {}", error.what()));
  }
}

Bytes sign(const RevocationList& list, const Key& authority) {
  const Bytes body = encode(list);
  return ByteWriter()
      .put_string(as_text(body))
      .put_string(authority.sign(kDomain, as_text(body)))
      .take();
}

Result<RevocationList> verify(std::span<const std::byte> signed_list,
                              std::string_view authority_pem) {
  const auto run = fingerprint_of(authority_pem);
  if (!run) return failure(run.error().message);
  std::string body;
  std::string signature;
  try {
    ByteReader in(signed_list);
    body = in.get_string(kMaxRevocationBytes);
    signature = in.get_string(kMaxSignatureBytes);
    in.expect_end();
  } catch (const InputError& error) {
    return failure(fmt::format("not a signed revocation list: {}", error.what()));
  }
  if (!is_signed_by(authority_pem, kDomain, body, signature)) {
    return failure("the revocation list is not signed by the run's authority");
  }
  auto list = decode_revocation_list(as_byte_span(body));
  if (list && list->run != *run) return failure("the revocation list is of another run");
  return list;
}

}  // namespace atl::identity
