#include "atoll/cli/reader_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/invite.h"
#include "atoll/run/run_authority.h"

namespace atl::cli {
namespace {

std::string token_from(const std::string& word) {
  if (word.empty()) return {};
  if (word != "-" && !word.starts_with('@')) {
    throw UsageError(
        "--token: @FILE or - (stdin); as a word other users of this machine could read it");
  }
  std::string token = identity::read_invite_argument(word);
  if (!identity::is_secret(token)) {
    throw InputError(
        "--token: that is no reader's token; 'atoll invite RUN --role reader --token' "
        "prints one");
  }
  return token;
}

std::string authority_in(const std::string& file) {
  std::string pem = read_file(file);
  if (const auto found = identity::fingerprint_of(pem); !found) {
    throw InputError(fmt::format("--authority: '{}': {}", file, found.error().message));
  }
  return pem;
}

void take_run(const std::string& run, net::HttpsIdentity& who) {
  if (run::has_identity(run)) {
    who.member = identity::load_credentials(run::identity_folder(run), run::wall_now());
    who.authority_pem = who.member->authority_pem;
  } else if (run::has_authority(run)) {
    who.authority_pem = authority_in(run::authority_folder(run) / "authority.pem");
  } else {
    throw UsageError(
        fmt::format("--run: '{}' is no folder of a member, and no run that was created", run));
  }
}

}  // namespace

void add_reader_options(CLI::App& command, ReaderOptions& options) {
  command.add_option("--token", options.token,
                     "of https: a reader's token, @FILE or \"-\" (from stdin)");
  command.add_option("--run", options.run,
                     "of https: a member's folder, whose certificate and authority are used");
  command
      .add_option("--authority", options.authority,
                  "of https: authority.pem of the run, which the server must have")
      ->check(CLI::ExistingFile);
  command.add_option("--fingerprint", options.fingerprint,
                     "of https: the authority's fingerprint, in the place of --authority");
}

std::shared_ptr<const net::HttpsIdentity> https_identity(const ReaderOptions& options) {
  const int num_pins = static_cast<int>(!options.run.empty()) +
                       static_cast<int>(!options.authority.empty()) +
                       static_cast<int>(!options.fingerprint.empty());
  if (num_pins != 1) {
    throw UsageError(
        "https needs one of --run FOLDER, --authority FILE and --fingerprint HEX, to know the "
        "server by");
  }
  auto who = std::make_shared<net::HttpsIdentity>();
  if (!options.fingerprint.empty()) {
    if (!identity::is_fingerprint(options.fingerprint)) {
      throw UsageError("--fingerprint: 64 hexadecimal digits in lower case");
    }
    who->fingerprint = options.fingerprint;
  } else if (!options.authority.empty()) {
    who->authority_pem = authority_in(options.authority);
  } else {
    take_run(options.run, *who);
  }
  who->token = token_from(options.token);
  return who;
}

}  // namespace atl::cli
