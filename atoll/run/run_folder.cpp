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
  if (!was_started()) return load_config(file, overrides);
  // What is not asked for stays as it was saved.
  RunConfig asked = load_config(path_ / "config.toml", {});
  SettingList list = asked.settings();
  if (!file.empty()) list.apply_toml(read_file(file), file.string());
  for (const std::string& assignment : overrides) list.apply_override(assignment);
  require_same(asked);
  return asked;
}

void RunFolder::require_same(RunConfig& config) const {
  if (!was_started()) return;
  RunConfig saved = load_config(path_ / "config.toml", {});
  const auto before = saved.settings().shared();
  for (const auto& [name, value] : config.settings().shared()) {
    if (before.at(name) != value) {
      throw UsageError(
          fmt::format("the run in '{}' was started with {} = {}, now {} is asked for; "
                      "resume it as it was or choose another --run",
                      path_.string(), name, before.at(name), value));
    }
  }
}

void RunFolder::save(RunConfig& config) const {
  write_file_atomically(path_ / "config.toml", config.settings().dump(/*with_help=*/true));
}

fs::path default_run_folder() {
  return fmt::format("runs/{:%Y-%m-%d-%H%M%S}",
                     fmt::localtime(static_cast<std::time_t>(wall_time())));
}

}  // namespace atl::run
