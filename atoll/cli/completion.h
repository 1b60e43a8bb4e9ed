#pragma once
// Scripts that complete the words of `atoll` in a shell: commands, options, settings, and what may
// be chosen; files everywhere else. All words are in the script: completing starts no program.
#include <string>

#include "atoll/base/settings.h"
#include "atoll/cli/command_tree.h"

namespace atl::cli {

std::string bash_completion(const Command& root, const SettingList& settings);
std::string zsh_completion(const Command& root, const SettingList& settings);
std::string fish_completion(const Command& root, const SettingList& settings);

}  // namespace atl::cli
