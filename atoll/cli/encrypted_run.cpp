#include "atoll/cli/encrypted_run.h"

#include <utility>

#include "atoll/cli/reader_server.h"
#include "atoll/net/address.h"
#include "atoll/run/coordinated_run.h"

namespace atl::cli {

EncryptedRun::EncryptedRun(const std::filesystem::path& folder, EventSink tell,
                           swarm::RunStatus first, const Clock& clock)
    : clock_(clock), authority_(folder, std::move(tell)), board_({std::move(first)}, clock) {}

swarm::AuthorityCallbacks EncryptedRun::callbacks() {
  return {.fingerprint = authority_.fingerprint(),
          .answer = [this](auto request,
                           const auto& caller) { return authority_.answer(request, caller); },
          .newer_revocations = [this] { return authority_.newer_revocations(); }};
}

std::string EncryptedRun::serve_readers(const std::string& where,
                                        const std::vector<std::string>& names) {
  readers_ = cli::serve_readers(where, names, authority_, board_, clock_);
  return readers_->address();
}

void EncryptedRun::be_found(const std::string& bound) {
  const net::Address address = *net::parse_address(bound);
  if (net::is_loopback(address)) return;
  auto beacon = net::Beacon::start(authority_.fingerprint(), address.port, clock_);
  if (beacon) {
    beacon_ = std::move(*beacon);
  } else {
    run::print_log("warning: nobody can find this coordinator by asking its LAN: " +
                   beacon.error().message);
  }
}

}  // namespace atl::cli
