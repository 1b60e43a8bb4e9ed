#include "atoll/weights/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

InputError broken(const fs::path& folder, const std::string& what) {
  return InputError(
      fmt::format("checkpoint '{}': {}; remove this folder to go on from the one before",
                  folder.string(), what));
}

/// What the part "files" or "tensors" says of a file.
const json& listed(const fs::path& folder, const json& manifest, const char* part,
                   const std::string& name) {
  const auto found = manifest.at(part).find(name);
  if (found == manifest.at(part).end()) {
    throw broken(folder, fmt::format("{} does not list {}", kManifestFile, name));
  }
  return *found;
}

}  // namespace

bool Manifest::exists(const fs::path& folder) { return fs::exists(folder / kManifestFile); }

Manifest::Manifest(fs::path folder) : folder_(std::move(folder)) {
  const std::string text = read_file(folder_ / kManifestFile);
  const auto is_text = [](const json& value) { return value.is_string(); };
  try {
    json_ = json::parse(text);
    const json& files = json_.at("files");
    bool whole = std::all_of(files.begin(), files.end(), is_text);
    for (const json& tensors : json_.at("tensors")) {
      whole = whole && tensors.is_object() && std::all_of(tensors.begin(), tensors.end(), is_text);
    }
    if (whole && files.is_object() && json_.at("tensors").is_object()) return;
  } catch (const json::exception& error) {
    throw broken(folder_, fmt::format("{} is damaged: {}", kManifestFile, error.what()));
  }
  throw broken(folder_, fmt::format("{} is damaged: it does not hold hashes", kManifestFile));
}

void Manifest::check_tensors(const std::string& file_name, const SafetensorsFile& file) const {
  const json& expected = listed(folder_, json_, "tensors", file_name);
  for (const auto& [name, hash] : expected.items()) {
    const TensorView* tensor = file.find(name);
    if (tensor == nullptr) {
      throw broken(folder_, fmt::format("{} has no tensor '{}' though {} lists it", file_name, name,
                                        kManifestFile));
    }
    if (hex(tensor_sha256(*tensor)) != hash.get_ref<const std::string&>()) {
      throw broken(
          folder_,
          fmt::format("tensor '{}' of {} is not what was saved (its SHA-256 differs from {})", name,
                      file_name, kManifestFile));
    }
  }
  if (file.tensors().size() != expected.size()) {
    throw broken(folder_, fmt::format("{} holds {} tensors and {} lists {}", file_name,
                                      file.tensors().size(), kManifestFile, expected.size()));
  }
}

void Manifest::check_file(const std::string& file_name) const {
  const json& expected = listed(folder_, json_, "files", file_name);
  const std::string contents = read_file(folder_ / file_name);
  if (hex(sha256(as_byte_span(contents))) != expected.get_ref<const std::string&>()) {
    throw broken(folder_, fmt::format("{} is not what was saved (its SHA-256 differs from {})",
                                      file_name, kManifestFile));
  }
}

void Manifest::check_files() const {
  for (const auto& [name, hash] : json_.at("files").items()) check_file(name);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  write_file_synced(path, [&](const Append& append) { append(as_byte_span(text)); });
}

}  // namespace atl::weights
