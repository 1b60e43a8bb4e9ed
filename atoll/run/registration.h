#pragma once
// A member's side of certificates: it asks the coordinator for the first by its invite, and for
// each next one by the one it has, while it trains.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/mutex.h"
#include "atoll/identity/invite.h"
#include "atoll/net/trust.h"

namespace atl::run {

/// Becomes a member by an invite: the key and what comes of it are kept in `folder`/identity, with
/// the coordinator's address, which is returned. A folder that has a key keeps it. Tries all
/// addresses of the invite, for as long as `patience` where nobody answers, and meanwhile asks the
/// LAN now and then: the address returned may be from there. Throws InputError.
std::string register_by_invite(const identity::Invite& invite, const std::filesystem::path& folder,
                               const std::string& name, Duration patience, const Clock& clock,
                               const std::function<bool()>& cancelled, const EventSink& tell);

/// The same, where that very invite was not used for this folder before; else nobody is asked.
std::string come_by_invite(const identity::Invite& invite, const std::filesystem::path& folder,
                           const std::string& name, Duration patience, const Clock& clock,
                           const std::function<bool()>& cancelled, const EventSink& tell);

/// Whether the member in `folder` came by this very invite, and its certificate holds: then nobody
/// need be asked.
bool has_come_by(const identity::Invite& invite, const std::filesystem::path& folder);

/// The coordinator that the member in `folder` joined; empty where that is not known.
std::string joined_coordinator(const std::filesystem::path& folder);
/// Whom the certificate in `folder` is for.
identity::PeerId certified_peer(const std::filesystem::path& folder);

/// The certificate of a member while it trains: in force, renewed before it ends, and who is
/// revoked is believed no more.
class Certificate {
 public:
  /// Throws InputError where the files are damaged, or it has expired. `clock` must outlive it.
  Certificate(std::filesystem::path folder, std::string coordinator, const Clock& clock,
              EventSink tell);
  ~Certificate();
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  const std::shared_ptr<net::Trust>& trust() const { return trust_; }
  /// A list that came from the coordinator. Not signed by the authority: nothing happens.
  void take_revocations(const Bytes& signed_list) const;
  /// Where the coordinator answers now (run/coordinator_search.h); it is asked for the next
  /// certificate there too.
  std::string seek_coordinator(Duration patience, const std::function<bool()>& cancelled);

 private:
  void keep_renewed();
  void renew();
  bool is_stopping() const;
  std::string coordinator() const;

  const std::filesystem::path folder_;
  const std::string known_coordinator_;
  const Clock& clock_;
  const EventSink tell_;
  std::string authority_pem_;
  std::shared_ptr<net::Trust> trust_;
  mutable Mutex mutex_;
  Condition stopped_;
  std::string coordinator_ ATOLL_GUARDED_BY(mutex_);  // Where it was found last.
  bool is_stopping_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::run
