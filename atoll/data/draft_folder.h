#pragma once
// A folder that appears whole or not at all: it is filled under a temporary name beside its own,
// synced and renamed. One owner thread.
#include <fmt/format.h>

#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::data {

/// "folder/" means "folder".
inline std::filesystem::path without_slash(const std::filesystem::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

/// Runs `body`; what the file system refuses becomes an InputError that names `target`.
template <typename Body>
auto naming(const std::filesystem::path& target, const Body& body) {
  try {
    return body();
  } catch (const std::filesystem::filesystem_error& error) {
    throw InputError(fmt::format("cannot write '{}': {}", target.string(), error.code().message()));
  }
}

/// The folder under its temporary name; removed unless it was published. Throws filesystem_error.
class DraftFolder {
 public:
  explicit DraftFolder(const std::filesystem::path& target) : target_(target), draft_(target) {
    draft_ += ".tmp";
    std::filesystem::remove_all(draft_);
    std::filesystem::create_directories(draft_);
  }
  ~DraftFolder() {
    std::error_code ignored;
    if (!published_) std::filesystem::remove_all(draft_, ignored);
  }
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;
  const std::filesystem::path& path() const { return draft_; }

  /// Takes the place of the target, if there is one.
  void publish() {
    sync_folder(draft_);
    std::filesystem::path old = target_;
    old += ".old";
    std::filesystem::remove_all(old);
    if (std::filesystem::exists(target_)) std::filesystem::rename(target_, old);
    std::filesystem::rename(draft_, target_);
    published_ = true;
    sync_folder(target_.has_parent_path() ? target_.parent_path() : std::filesystem::path("."));
    std::filesystem::remove_all(old);
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path draft_;
  bool published_ = false;
};

}  // namespace atl::data
