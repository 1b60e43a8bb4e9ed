#pragma once
// manifest.json of a run's checkpoint: SHA-256 of each tensor and file, compared with what is
// opened. A bit that flipped on a disk would otherwise answer with wrong text. Writing it is
// weights/checkpoint's job. A plain Hugging Face folder has none.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "atoll/weights/safetensors.h"

namespace atl::weights {

inline constexpr const char* kManifestFile = "manifest.json";

class Manifest {
 public:
  /// Whether `folder` has one.
  static bool exists(const std::filesystem::path& folder);
  /// Throws InputError when it is missing or damaged; so do the functions below.
  explicit Manifest(std::filesystem::path folder);

  /// Throws InputError naming the first tensor that differs, is missing or is not listed.
  void check_tensors(const std::string& file_name, const SafetensorsFile& file) const;
  /// Throws InputError unless the file is listed and as it was saved.
  void check_file(const std::string& file_name) const;
  /// All but the tensors' files.
  void check_files() const;

 private:
  std::filesystem::path folder_;
  nlohmann::json json_;
};

/// A file beside the tensors, synced, of a folder that nobody reads yet.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace atl::weights
