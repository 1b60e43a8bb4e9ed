#pragma once
// A relay's folder: its memberships, one for each run that it serves. That of the first run lies in
// the folder itself, of any other in a folder therein, named by the run's authority.
#include <filesystem>
#include <string>
#include <vector>

namespace atl::run {

/// Folders with a membership each (run/run_authority.h), in an order of their own.
std::vector<std::filesystem::path> memberships_in(const std::filesystem::path& relay);

/// Where the membership of the run with that authority lies, or is to lie.
std::filesystem::path membership_of(const std::filesystem::path& relay,
                                    const std::string& fingerprint);

/// How a run is called where a relay's logs tell several apart: as `atoll create` shows its
/// authority.
std::string short_run(const std::string& fingerprint);

}  // namespace atl::run
