#pragma once
// What a server and a gateway have in common as members of a swarm: its coordinator, their
// certificate, their transport.
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/chain/directory_post.h"
#include "atoll/identity/peer.h"
#include "atoll/net/transport.h"
#include "atoll/run/registration.h"
#include "atoll/run/run_folder.h"

namespace CLI {
class App;
}

namespace atl::cli {

struct SwarmArguments {
  std::string join;    // An invite, or HOST:PORT.
  std::string folder;  // With the certificate.
  std::string name;
  bool insecure = false;
  std::string option = "--join";  // What `join` came by, for messages.
  std::string kind;               // Begins a name that is made up; empty: its role does.
};

/// --join, --run, --name, --insecure; `role` for their help.
void add_swarm_arguments(CLI::App& command, SwarmArguments& arguments, identity::Role role);

/// A line of what happens, to stderr, with the time.
void print_note(const std::string& line);

class SwarmPlace {
 public:
  /// Becomes a member by the invite, where there is one. Throws UsageError, InputError. The clock
  /// must outlive it.
  SwarmPlace(const SwarmArguments& arguments, identity::Role role, const Clock& clock);

  const std::string& name() const { return name_; }
  const std::string& coordinator() const { return coordinator_; }
  std::unique_ptr<net::Transport> make_transport(net::Transport::Sink sink) const;
  /// Without what is watched. This place must outlive whoever uses them.
  chain::DirectoryPostOptions post_options() const;
  /// Where this machine listens, unless its user says where: where the coordinator's sees it.
  std::string listening_address() const;
  /// Throws UsageError where others cannot go to that address.
  void require_reachable(const std::string& address) const;

 private:
  const Clock& clock_;
  const bool insecure_;
  std::optional<run::RunFolder> folder_;  // Held: one process has a membership.
  std::string name_;
  std::string coordinator_;
  std::unique_ptr<run::Certificate> certificate_;  // Null: in the clear.
};

}  // namespace atl::cli
