#pragma once

namespace CLI {
class App;
}

namespace atl::cli {

/// `atoll create`: an encrypted run, and its first invite.
void add_create_command(CLI::App& app);
/// `atoll invite`.
void add_invite_command(CLI::App& app);
/// `atoll revoke`.
void add_revoke_command(CLI::App& app);

}  // namespace atl::cli
