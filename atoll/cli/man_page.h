#pragma once
#include <string>

#include "atoll/base/settings.h"
#include "atoll/cli/command_tree.h"

namespace atl::cli {

/// One page in man's language with all commands and settings.
std::string man_page(const Command& root, const SettingList& settings, const std::string& version);

}  // namespace atl::cli
