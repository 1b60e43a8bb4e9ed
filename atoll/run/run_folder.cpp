#include "atoll/run/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/event_log.h"
#include "atoll/base/file.h"
#include "atoll/identity/invite.h"
#include "atoll/weights/checkpoint.h"

namespace atl::run {

namespace fs = std::filesystem;

namespace {

/// Creates "runs/<date>-<time>"; with -2, -3, ... when another run began in the same second.
fs::path create_default_folder() {
  std::error_code error;
  fs::create_directories("runs", error);
  const std::string name =
      fmt::format("runs/{:%Y-%m-%d-%H%M%S}", fmt::localtime(static_cast<std::time_t>(wall_time())));
  fs::path path = name;
  for (int number = 2; !fs::create_directory(path, error) && !error; ++number) {
    path = fmt::format("{}-{}", name, number);
  }
  return path;  // If it could not be created, opening the lock says why.
}

/// A run's directory has a lock; an island's may begin with the log of the launcher, and with who
/// it is.
void require_run_directory(const fs::path& folder) {
  std::error_code missing;
  if (fs::exists(folder / "lock")) return;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const auto name = entry.path().filename();
    if (name == "log.txt" || name == "identity") continue;
    throw UsageError(
        fmt::format("--run: '{}' is not empty and is no run directory (it holds '{}'); choose a "
                    "new name or an empty folder",
                    folder.string(), entry.path().filename().string()));
  }
}

bool has_checkpoint(const fs::path& folder) {
  return !weights::list_checkpoints(folder / "checkpoints").empty();
}

}  // namespace

std::string name_of_run(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  if (path_.empty()) {
    path_ = create_default_folder();
    created_ = true;
  } else {
    created_ = fs::create_directories(path_, error);
    if (error) {
      throw InputError(
          fmt::format("cannot create the run directory '{}': {}", path_.string(), error.message()));
    }
    require_run_directory(path_);
  }
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

RunFolder::~RunFolder() {
  std::error_code ignored;
  const bool has_run = std::ranges::any_of(
      fs::directory_iterator(path_, ignored), [](const fs::directory_entry& entry) {
        return entry.path().filename() != "lock" && entry.path().filename() != kEventsFile;
      });
  if (created_ && !has_run) fs::remove_all(path_, ignored);
  ::close(lock_);
}

void RunFolder::save(RunConfig& config) const {
  RunConfig kept = config;
  if (identity::is_invite_word(kept.adapter.servers)) {  // A secret; what it brings is kept apart.
    const auto invite = identity::invite_in(kept.adapter.servers);
    if (!invite) throw UsageError(invite.error().message);
    kept.adapter.servers = invite->addresses.front();
  }
  write_file_atomically(path_ / "config.toml", kept.settings().dump(/*with_help=*/true));
}

bool was_started(const fs::path& folder) {
  if (folder.empty() || !fs::exists(folder / "config.toml")) return false;
  if (has_checkpoint(folder)) return true;
  std::error_code missing;
  const fs::directory_iterator entries(folder, missing);
  return std::ranges::any_of(entries, [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with("island-") && has_checkpoint(entry.path());
  });
}

RunConfig configure(const fs::path& folder, const fs::path& file,
                    const std::vector<std::string>& overrides) {
  const bool started = was_started(folder);
  // What is not asked for stays as it was saved.
  RunConfig asked = started ? load_config(folder / "config.toml", {}) : RunConfig();
  apply(asked, file, overrides);
  choose_method(asked, asked.swarm.num_replicas() == 1);
  if (started) require_same(folder, asked);
  return asked;
}

void require_same(const fs::path& folder, RunConfig& config) {
  if (!was_started(folder)) return;
  RunConfig saved = load_config(folder / "config.toml", {});
  require_same(folder, saved.settings().shared(), config.settings().shared());
}

void require_same(const fs::path& folder, const std::map<std::string, std::string>& before,
                  const std::map<std::string, std::string>& now) {
  for (const auto& [name, value] : now) {
    if (before.at(name) == value) continue;
    const bool is_length = name == "train.steps";
    throw UsageError(fmt::format(
        "the run in '{}' was started with {} = {}, now {} is asked for; resume it as it was or "
        "choose another --run{}",
        folder.string(), name, before.at(name), value,
        is_length ? "; to train further on what it learned, give that new run --init and this one"
                  : ""));
  }
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string resume_command(const fs::path& folder, int64_t islands, const std::string& link_rate) {
  return fmt::format(
      "atoll train{} --run {}{}", islands > 1 ? fmt::format(" --islands {}", islands) : "",
      shell_quoted(folder.string()),
      link_rate.empty() ? "" : fmt::format(" --link-rate {}", shell_quoted(link_rate)));
}

}  // namespace atl::run
