#pragma once
// What one of a coordinator's runs has more where `atoll create` made it: an authority, which says
// who takes part; readers elsewhere; islands that look for it on their LAN.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/coordinator/status_board.h"
#include "atoll/net/discovery.h"
#include "atoll/net/http_server.h"
#include "atoll/run/run_authority.h"

namespace atl::cli {

class EncryptedRun {
 public:
  /// `first` is its status before there is another. `clock` must outlive it. Throws InputError.
  EncryptedRun(const std::filesystem::path& folder, EventSink tell, swarm::RunStatus first,
               const Clock& clock);

  const std::shared_ptr<net::Trust>& trust() const { return authority_.trust(); }
  /// For the server, whose callbacks use this object.
  swarm::AuthorityCallbacks callbacks();

  /// Over HTTPS at `where`: its own readers, and none of another run, see how it goes. Returns the
  /// address. Throws UsageError, InputError.
  std::string serve_readers(const std::string& where, const std::vector<std::string>& names);
  void publish(swarm::RunStatus status) { board_.publish(0, std::move(status)); }

  /// Its islands find it on the LAN by the address that was bound, unless that is of this machine
  /// alone.
  void be_found(const std::string& bound);

 private:
  const Clock& clock_;
  run::RunAuthority authority_;
  swarm::StatusBoard board_;
  std::unique_ptr<net::HttpServer> readers_;
  std::unique_ptr<net::Beacon> beacon_;
};

}  // namespace atl::cli
