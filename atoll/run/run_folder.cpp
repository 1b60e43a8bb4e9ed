#include "atoll/run/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::run {

namespace fs = std::filesystem;

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  const fs::path lock_file = path_ / "lock";
  lock_ = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    throw InputError(
        fmt::format("cannot use the run directory '{}': {}", path_.string(), std::strerror(errno)));
  }
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw InputError(
        fmt::format("the run directory '{}' is in use by another atoll; wait for it or "
                    "choose another --run",
                    path_.string()));
  }
}

RunFolder::~RunFolder() { ::close(lock_); }

bool RunFolder::was_started() const { return fs::exists(path_ / "config.toml"); }

RunConfig RunFolder::configure(const fs::path& file, const std::vector<std::string>& overrides) {
  RunConfig wanted = load_config(file, overrides);
  if (!was_started()) return wanted;

  const fs::path saved_file = path_ / "config.toml";
  RunConfig saved = load_config(saved_file, {});
  // What was not asked for stays as saved; what was must agree, unless it is this machine's own.
  RunConfig asked = load_config(saved_file, {});
  SettingList list = asked.settings();
  if (!file.empty()) list.apply_toml(read_file(file), file.string());
  for (const std::string& assignment : overrides) list.apply_override(assignment);
  const auto before = saved.settings().shared();
  for (const auto& [name, value] : list.shared()) {
    if (before.at(name) != value) {
      throw UsageError(
          fmt::format("the run in '{}' was started with {} = {}, now {} is asked for; "
                      "resume it as it was or choose another --run",
                      path_.string(), name, before.at(name), value));
    }
  }
  return asked;
}

void RunFolder::save(RunConfig& config) const {
  write_file_atomically(path_ / "config.toml", config.settings().dump(/*with_help=*/true));
}

fs::path default_run_folder() {
  return fmt::format("runs/{:%Y-%m-%d-%H%M%S}",
                     fmt::localtime(static_cast<std::time_t>(wall_time())));
}

}  // namespace atl::run
