#include "atoll/data/draft_file.h"

#include "atoll/base/file.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

fs::path replaceable(const fs::path& target) {
  std::error_code error;
  const fs::file_type type = fs::status(target, error).type();
  const bool is_link = fs::is_symlink(fs::symlink_status(target, error));
  if (type == fs::file_type::regular) return is_link ? fs::canonical(target) : target;
  if (type == fs::file_type::not_found && !is_link) return target;
  throw UsageError(fmt::format(
      "'{}' is not a regular file, so it is not replaced; choose another name", target.string()));
}

fs::path temporary_name(const fs::path& target) {
  fs::path temporary = target;
  temporary += ".tmp";
  return temporary;
}

}  // namespace

HashedFile::HashedFile(const fs::path& path, const fs::path& shown)
    : shown_(shown), file_(path, O_WRONLY | O_CREAT | O_TRUNC) {
  if (file_.get() < 0) fail_at("write", shown_);
}

void HashedFile::append(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  write_all(file_, bytes, shown_);
}

std::string HashedFile::finish() {
  if (::fsync(file_.get()) != 0) fail_at("sync", shown_);
  return hex(hash_.finish());
}

DraftFile::DraftFile(const fs::path& target)
    : target_(replaceable(target)),
      temporary_(temporary_name(target_)),
      file_(temporary_, target_) {}

DraftFile::~DraftFile() {
  if (!published_) ::unlink(temporary_.c_str());
}

std::string DraftFile::publish() {
  const std::string sha256 = file_.finish();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_at("write", target_);
  published_ = true;
  sync_folder(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
  return sha256;
}

}  // namespace atl::data
