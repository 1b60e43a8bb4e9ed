#include "atoll/weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/number.h"
#include "atoll/weights/adapter.h"
#include "atoll/weights/manifest.h"
#include "atoll/weights/model_files.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kPrefix = "step-";
constexpr const char* kTemporary = ".tmp";
constexpr const char* kDoomed = ".old.tmp";

json tensor_hashes(const std::vector<TensorView>& tensors) {
  json hashes = json::object();
  for (const auto& tensor : tensors) hashes[tensor.name] = hex(tensor_sha256(tensor));
  return hashes;
}

/// Renamed first: a kill in the middle must not leave half a checkpoint under a whole one's name.
void remove_checkpoint(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  fs::path doomed = folder;
  doomed += kDoomed;
  fs::remove_all(doomed);
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

/// What a kill left behind. The run directory has one user, so nobody is writing these.
void remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kTemporary)) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path);
}

const char* model_file_of(const fs::path& folder) {
  return fs::exists(folder / kAdapterConfigFile) ? kAdapterFile : kWeightsFile;
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path folder, int64_t keep, StagingPlace place)
    : folder_(std::move(folder)), keep_(keep), model_(place, folder_), optimizer_(place, folder_) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();  // It uses the other members.
}

void CheckpointWriter::reserve(const CheckpointContents& contents) {
  model_.make_room(contents.model);
  optimizer_.make_room(contents.optimizer);
}

size_t CheckpointWriter::reserved_bytes() const {
  return model_.num_bytes() + optimizer_.num_bytes();
}

void CheckpointWriter::begin(CheckpointContents contents) {
  if (thread_.joinable()) thread_.join();
  {
    const MutexLock lock(mutex_);
    copied_ = false;
  }
  thread_ = std::jthread([this, contents = std::move(contents)]() mutable {
    const auto set_copied = [this] {
      const MutexLock lock(mutex_);
      copied_ = true;
      changed_.notify_all();
    };
    try {
      model_.copy(contents.model);
      optimizer_.copy(contents.optimizer);
      set_copied();
      if (contents.complete) contents.complete(contents);
      write(contents);
      if (contents.written) contents.written();
    } catch (const std::exception& error) {
      set_copied();
      const MutexLock lock(mutex_);
      error_ = error.what();
    }
  });
}

double CheckpointWriter::release(const Clock& clock) {
  const Time begin = clock.now();
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() ATOLL_REQUIRES(mutex_) { return copied_; });
  return seconds(clock.now() - begin);
}

std::optional<std::string> CheckpointWriter::finish() {
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  return std::exchange(error_, std::nullopt);
}

void CheckpointWriter::write(const CheckpointContents& contents) {
  fs::create_directories(folder_);
  remove_leftovers(folder_);
  const fs::path final_path = folder_ / fmt::format("{}{:08}", kPrefix, contents.step);
  fs::path temporary = final_path;
  temporary += kTemporary;
  fs::create_directory(temporary);
  const char* const model_file = contents.is_adapter ? kAdapterFile : kWeightsFile;
  try {
    json manifest = {{"format", 1},
                     {"step", contents.step},
                     {"data_order", json::parse(contents.data_order)},
                     {"tensors",
                      {{model_file, tensor_hashes(contents.model)},
                       {kOptimizerFile, tensor_hashes(contents.optimizer)}}}};
    write_safetensors(temporary / model_file, contents.model, {{"format", "pt"}});
    write_safetensors(temporary / kOptimizerFile, contents.optimizer, {{"format", "pt"}});
    std::set<fs::path> folders;  // Of files that have one of their own.
    for (const auto& [name, text] : contents.files) {
      manifest["files"][name] = hex(sha256(as_byte_span(text)));
      const fs::path file = temporary / name;
      if (file.parent_path() != temporary) {
        fs::create_directories(file.parent_path());
        folders.insert(file.parent_path());
      }
      write_text(file, text);
    }
    write_text(temporary / kManifestFile, manifest.dump(1));
    for (const fs::path& folder : folders) sync_folder(folder);
    sync_folder(temporary);
    remove_checkpoint(final_path);  // The same step again, after a resume.
    fs::rename(temporary, final_path);
    sync_folder(folder_);
  } catch (...) {
    std::error_code ignored;  // The first error is the one to report.
    fs::remove_all(temporary, ignored);
    throw;
  }
  remove_old();
}

void CheckpointWriter::remove_old() const {
  if (keep_ == 0) return;
  const auto checkpoints = list_checkpoints(folder_);
  const auto excess = std::ssize(checkpoints) - keep_;
  for (int64_t i = 0; i < excess; ++i) {
    remove_checkpoint(checkpoints[static_cast<size_t>(i)].second);
  }
}

std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& folder) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto step = number_in<int64_t>(std::string_view(name).substr(std::strlen(kPrefix)));
    if (step) found.emplace_back(*step, entry.path());
  }
  std::ranges::sort(found);
  return found;
}

Checkpoint::Checkpoint(const fs::path& folder)
    : model_(folder / model_file_of(folder)),
      optimizer_(folder / kOptimizerFile),
      state_(read_file(folder / "state.json")) {
  const Manifest manifest(folder);
  manifest.check_tensors(model_file_of(folder), model_);
  manifest.check_tensors(kOptimizerFile, optimizer_);
  manifest.check_files();
}

}  // namespace atl::weights
