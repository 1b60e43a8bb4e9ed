#pragma once
// What many tests need: a folder of their own, and the words of a refusal. For tests only.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl {

/// A new empty folder under the system's temporary one, gone with all in it at the end.
class TestFolder {
 public:
  TestFolder() { std::filesystem::create_directory(path_); }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // NOLINTNEXTLINE(google-explicit-constructor): it stands for its path.
  operator const std::filesystem::path&() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

  /// Writes the file `name`, and the folders that lead to it.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("atoll-test-" + random_name());
};

/// What `action` complains of: the message of its `Error`, empty when there is none.
template <typename Error = InputError>
std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace atl
