#include "atoll/run/relay_folder.h"

#include <algorithm>

#include "atoll/run/registration.h"
#include "atoll/run/run_authority.h"

namespace atl::run {
namespace fs = std::filesystem;

std::vector<fs::path> memberships_in(const fs::path& relay) {
  std::vector<fs::path> found;
  if (!fs::exists(relay)) return found;
  for (const auto& entry : fs::directory_iterator(relay)) {
    if (entry.is_directory() && has_identity(entry.path())) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  if (has_identity(relay)) found.insert(found.begin(), relay);
  return found;
}

fs::path membership_of(const fs::path& relay, const std::string& fingerprint) {
  for (const fs::path& membership : memberships_in(relay)) {
    if (certified_peer(membership).run == fingerprint) return membership;
  }
  return has_identity(relay) ? relay / short_run(fingerprint) : relay;
}

std::string short_run(const std::string& fingerprint) { return fingerprint.substr(0, 16); }

}  // namespace atl::run
