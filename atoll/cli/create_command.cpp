#include "atoll/cli/create_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/name.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/whole_number.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/invite.h"
#include "atoll/identity/invite_book.h"
#include "atoll/identity/private_file.h"
#include "atoll/identity/registrar.h"
#include "atoll/net/address.h"
#include "atoll/run/config.h"
#include "atoll/run/run_authority.h"
#include "atoll/run/run_folder.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint16_t kUsualPort = 7070;  // Of atoll coordinate.
constexpr const char* kBackupFile = "authority-backup";
/// In the authority's folder: what --address of `create` said, for later invites.
constexpr const char* kAddressFile = "addresses";

constexpr const char* kCreateFooter = R"(
Makes the run's authority, which says who is a member, and prints an invite: one line that goes
to whoever shall take part, by a way that you trust. All connections are encrypted (TLS 1.3),
and both ends prove who they are. Where the coordinator can be reached is in the invite: --address.

RUN/authority is the key to the run: who can read it can let anybody in. RUN/authority-backup is a
copy that is encrypted with the recovery code, which is shown once. With both --restore makes the
authority again, on another machine too.

Examples:
  atoll create runs/ours --address ours.example.org:7070 > invite.txt
  atoll create runs/ours --config run.toml --uses 8 --expires 2d > invite.txt
  atoll coordinate --run runs/ours                    then, on this machine
  atoll join @invite.txt --run runs/here              on each island
  atoll create runs/ours --restore authority-backup --passphrase @code.txt)";

constexpr const char* kInviteFooter = R"(
Prints another invite to a run that `atoll create` made; its coordinator may be running. With
--role reader --token it prints a token instead: who has it may ask a coordinator with --https how
the run goes, as often as wanted until it ends, and nothing else.

Examples:
  atoll invite runs/ours --uses 1 --name reef --expires 1h > invite.txt
  atoll invite runs/ours --role reader --token --expires 30d > token.txt
  atoll invite runs/ours --list
  atoll invite runs/ours --withdraw 3f2c9a0b77d1)";

constexpr const char* kRevokeFooter = R"(
The member's connections close within two seconds, at all members; its certificate is void,
and so is the invite it came by. It may come back by a new one.

Examples:
  atoll revoke reef --run runs/ours)";

struct InviteArguments {
  std::string run;
  std::vector<std::string> addresses;
  std::string role = "island";
  int64_t uses = 1;
  std::string expires = "7d";
  std::string name;
  std::string withdraw;
  bool token = false;
  bool list = false;
  bool json = false;
};

struct CreateArguments {
  InviteArguments invite;
  std::string config;
  std::string restore;
  std::string passphrase;
};

std::chrono::seconds duration_from(const std::string& option, const std::string& text) {
  const auto seconds = parse_quantity(text, kTimeUnits);
  if (!seconds || *seconds < 1 || *seconds > 365 * 86400.0) {
    throw UsageError(
        fmt::format("{}: '{}' is no time from 1s to 365d; write e.g. 2h or 7d", option, text));
  }
  return std::chrono::seconds(static_cast<int64_t>(*seconds));
}

/// Where the coordinator can be reached, as far as this machine knows.
std::vector<std::string> addresses_of(const InviteArguments& arguments) {
  for (const std::string& address : arguments.addresses) {
    net::require_address("--address", address);
  }
  if (!arguments.addresses.empty()) return arguments.addresses;
  std::vector<std::string> addresses;
  if (const fs::path told = run::authority_folder(arguments.run) / kAddressFile; fs::exists(told)) {
    std::istringstream lines(read_file(told));
    for (std::string line; std::getline(lines, line);) addresses.push_back(line);
    return addresses;
  }
  for (const std::string& host : net::own_hosts()) {
    if (addresses.size() == identity::kMaxInviteAddresses) break;
    addresses.push_back(net::Address{.host = host, .port = kUsualPort}.text());
  }
  if (addresses.empty()) addresses.push_back(fmt::format("127.0.0.1:{}", kUsualPort));
  return addresses;
}

void print_invite(const InviteArguments& arguments, const identity::Authority& authority,
                  const std::vector<std::string>& addresses) {
  const auto role = identity::role_named(arguments.role);
  if (!role) throw UsageError("--role: " + role.error().message);
  if (*role == identity::Role::kCoordinator) {
    throw UsageError("--role: who has the authority's folder is the coordinator");
  }
  const auto now = run::wall_now();
  identity::InviteBook book(run::invite_file(arguments.run));
  const identity::WallTime expiry = now + duration_from("--expires", arguments.expires);
  const std::string secret = book.add(
      {.role = *role, .uses = arguments.uses, .expiry = expiry, .name = arguments.name}, now);
  const std::string word = identity::word_of({.addresses = addresses,
                                              .fingerprint = authority.fingerprint(),
                                              .secret = secret,
                                              .run_name = authority.run_name(),
                                              .role = *role,
                                              .expiry = expiry});
  if (arguments.json) {
    fmt::print("{}\n", nlohmann::json{{"invite", word},
                                      {"id", identity::invite_id(secret)},
                                      {"addresses", addresses},
                                      {"role", arguments.role},
                                      {"uses", arguments.uses},
                                      {"until", identity::text_of(expiry)}}
                           .dump());
    return;
  }
  fmt::print("{}\n", word);
  std::string places;
  for (const std::string& address : addresses) places += (places.empty() ? "" : ", ") + address;
  fmt::print(stderr, "atoll: invite {}: {} {}{}, until {}, to {}\n", identity::invite_id(secret),
             arguments.uses, arguments.role, arguments.uses == 1 ? "" : "s",
             identity::text_of(expiry), places);
}

void print_token(const InviteArguments& arguments, const identity::Authority& authority) {
  if (arguments.role != identity::name_of(identity::Role::kReader)) {
    throw UsageError("--token is for --role reader: others come by an invite");
  }
  if (!arguments.name.empty())
    throw UsageError("--token: nobody is named by one; leave --name out");
  const auto now = run::wall_now();
  const identity::WallTime expiry = now + duration_from("--expires", arguments.expires);
  const identity::Secret token(
      identity::InviteBook(run::invite_file(arguments.run))
          .add({.role = identity::Role::kReader, .uses = 0, .expiry = expiry, .is_token = true},
               now));
  const std::string id = identity::invite_id(token.text());
  if (arguments.json) {
    fmt::print("{}\n", nlohmann::json{{"token", token.text()},
                                      {"id", id},
                                      {"authority", authority.fingerprint()},
                                      {"until", identity::text_of(expiry)}}
                           .dump());
    return;
  }
  fmt::print("{}\n", token.text());
  fmt::print(stderr, "atoll: reader's token {}, until {}; the authority's fingerprint is {}\n", id,
             identity::text_of(expiry), authority.fingerprint());
}

/// "2 islands", "a token of readers".
std::string text_of(const identity::InviteTerms& terms) {
  if (terms.is_token) return "a token of readers";
  return fmt::format("{} {}{}", terms.uses, identity::name_of(terms.role),
                     terms.uses == 1 ? "" : "s");
}

/// Not as a word on the command line, which others see and shells remember.
std::string read_passphrase(const std::string& argument) {
  if (argument != "-" && !argument.starts_with('@')) {
    throw UsageError("--passphrase: give it by a file (@FILE) or by stdin (-)");
  }
  return identity::read_invite_argument(argument);
}

void restore(const CreateArguments& arguments) {
  if (arguments.passphrase.empty()) {
    throw UsageError("--restore needs the recovery code: --passphrase - or --passphrase @FILE");
  }
  const fs::path run = arguments.invite.run;
  if (run::has_authority(run)) {
    throw InputError(fmt::format("'{}' has an authority already", run.string()));
  }
  const std::string code = read_passphrase(arguments.passphrase);
  auto authority = identity::Authority::restore(read_file(arguments.restore), code);
  fs::create_directories(run);
  authority.save(run::authority_folder(run));
  fmt::print(stderr,
             "atoll: '{}' is the authority of run '{}' again; invites and the names of members are "
             "not in a "
             "backup: invite with --name, and revoke again who was\n",
             run.string(), authority.run_name());
}

void create(const CreateArguments& arguments) {
  if (!arguments.restore.empty()) return restore(arguments);
  const fs::path run = arguments.invite.run;
  const std::string name = run::name_of_run(run);
  if (!is_valid_name(name)) {
    throw UsageError(fmt::format(
        "a run is called as its folder is: 1 to 64 letters, digits, '-', '_' or '.'; '{}' is none",
        printable(name)));
  }
  const auto addresses = addresses_of(arguments.invite);
  duration_from("--expires", arguments.invite.expires);
  if (!arguments.config.empty()) {  // Mistakes are told before anything is made.
    run::RunConfig config = run::load_config(arguments.config, {});
    run::check(config);
  }
  const auto authority = run::create_authority(run, name);
  if (!arguments.config.empty()) {
    write_file_atomically(run / "config.toml", read_file(arguments.config));
  }
  if (!arguments.invite.addresses.empty()) {
    write_file_atomically(run::authority_folder(run) / kAddressFile,
                          fmt::format("{}\n", fmt::join(arguments.invite.addresses, "\n")));
  }
  const std::string code =
      arguments.passphrase.empty() ? identity::new_secret() : read_passphrase(arguments.passphrase);
  identity::write_private_file(run / kBackupFile, authority.encrypted_backup(code));
  fmt::print(stderr, "atoll: created '{}'; its authority is {}\n", run.string(),
             authority.fingerprint().substr(0, 16));
  if (arguments.passphrase.empty()) {
    fmt::print(stderr, "atoll: recovery code of {}, shown this once: {}\n",
               (run / kBackupFile).string(), code);
  }
  print_invite(arguments.invite, authority, addresses);
}

void list_invites(const InviteArguments& arguments) {
  const identity::InviteBook book(run::invite_file(arguments.run));
  const auto invites = book.list();
  for (const identity::ListedInvite& invite : invites) {
    fmt::print("{}  {}, until {}{}\n", invite.id, text_of(invite.terms),
               identity::text_of(invite.terms.expiry),
               invite.terms.name.empty() ? "" : ", as '" + invite.terms.name + "'");
  }
  for (const auto& [name, holder] : book.holders()) {
    fmt::print("member '{}', {}\n", name, identity::name_of(holder.role));
  }
}

void require_created(const std::string& run) {
  if (run::has_authority(run)) return;
  throw UsageError(fmt::format("'{}' was not made by 'atoll create': it has no authority", run));
}

void invite(const InviteArguments& arguments) {
  require_created(arguments.run);
  if (arguments.list) return list_invites(arguments);
  if (!arguments.withdraw.empty()) {
    if (!identity::InviteBook(run::invite_file(arguments.run)).withdraw(arguments.withdraw)) {
      throw UsageError(fmt::format("there is no invite {}", printable(arguments.withdraw)));
    }
    return;
  }
  const auto authority = identity::Authority::load(run::authority_folder(arguments.run));
  if (arguments.token) return print_token(arguments, authority);
  print_invite(arguments, authority, addresses_of(arguments));
}

void revoke(const std::string& run, const std::string& member) {
  require_created(run);
  auto authority = identity::Authority::load(run::authority_folder(run));
  identity::InviteBook book(run::invite_file(run));
  const auto holders = book.holders();
  const bool is_known =
      std::ranges::any_of(holders, [&](const auto& holder) { return holder.first == member; });
  if (!is_known) {
    fmt::print(stderr,
               "atoll: warning: nobody is known as '{}' ('atoll invite {} --list' shows members); "
               "certificates of that name are revoked all the same\n",
               printable(member), run);
  }
  identity::Registrar registrar(authority, book, {}, [](const Event& event) {
    fmt::print(stderr, "atoll: {}\n", event.sentence);
  });
  // A renewal that is on its way while the list is written is revoked too.
  registrar.revoke(identity::Revocation::Kind::kPeer, member,
                   run::wall_now() + std::chrono::seconds(1));
}

void add_invite_options(CLI::App& command, InviteArguments& arguments) {
  command.add_option("run", arguments.run, "the run's folder")->required();
  command
      .add_option(
          "--address", arguments.addresses,
          "HOST:PORT where the coordinator can be reached; may be given several times "
          "(default: as the run was created with, else this machine's addresses, port 7070)")
      ->allow_extra_args(false);
  command.add_option("--uses", arguments.uses, "how many may come by the invite")
      ->check(whole_number<int64_t>(1, identity::kMaxUses))
      ->capture_default_str();
  command.add_option("--expires", arguments.expires, "after which it is void, e.g. 12h or 7d")
      ->capture_default_str();
  command.add_option("--role", arguments.role, "island, relay, server, gateway or reader")
      ->capture_default_str();
  command.add_option("--name", arguments.name, "the name that who comes must take");
  command.add_flag("--json", arguments.json, "print the invite as one JSON object");
}

}  // namespace

void add_create_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("create", "Create an encrypted run, and print an invite to it");
  auto arguments = std::make_shared<CreateArguments>();
  arguments->invite.uses = 16;
  add_invite_options(*command, arguments->invite);
  command
      ->add_option("--config", arguments->config,
                   "TOML file with the run's settings, which is copied to its folder")
      ->check(CLI::ExistingFile);
  command->add_option("--restore", arguments->restore, "make the authority from a backup again")
      ->check(CLI::ExistingFile);
  command->add_option("--passphrase", arguments->passphrase,
                      "of the backup: \"-\" reads it from stdin, @FILE from a file (default: a "
                      "recovery code is made up)");
  command->footer(kCreateFooter);
  command->callback([arguments] { create(*arguments); });
}

void add_invite_command(CLI::App& app) {
  auto* command = app.add_subcommand("invite", "Print another invite to an encrypted run");
  auto arguments = std::make_shared<InviteArguments>();
  add_invite_options(*command, *arguments);
  command->add_flag("--token", arguments->token,
                    "print a reader's token instead, which is good for reading over HTTPS alone");
  command->add_flag("--list", arguments->list, "show open invites and members instead");
  command->add_option("--withdraw", arguments->withdraw, "void the invite with this id instead");
  command->footer(kInviteFooter);
  command->callback([arguments] { invite(*arguments); });
}

void add_revoke_command(CLI::App& app) {
  auto* command = app.add_subcommand("revoke", "Put a member out of an encrypted run");
  auto member = std::make_shared<std::string>();
  auto run = std::make_shared<std::string>();
  command->add_option("member", *member, "its name")->required();
  command->add_option("--run", *run, "the run's folder, with its authority")->required();
  command->footer(kRevokeFooter);
  command->callback([member, run] { revoke(*run, *member); });
}

}  // namespace atl::cli
