#include "atoll/data/corpus.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/number.h"
#include "atoll/text/utf8.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

bool matches(const std::string& pattern, const std::string& name) {
  const bool whole_path = pattern.find('/') != std::string::npos;
  const std::string subject = whole_path ? name : fs::path(name).filename().string();
  return ::fnmatch(pattern.c_str(), subject.c_str(), 0) == 0;
}

[[noreturn]] void fail_to_read(const fs::path& path, const std::string& reason) {
  throw InputError(fmt::format("cannot read '{}': {}", path.string(), reason));
}

/// No zero byte and valid UTF-8 at its start (a character may be cut where the look ends).
bool looks_like_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail_to_read(path, std::strerror(errno));
  std::string head(8192, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(stream.gcount()));
  if (head.find('\0') != std::string::npos) return false;
  constexpr size_t kLongestCharacter = 4;
  return text::valid_utf8_prefix(head) + kLongestCharacter > head.size();
}

/// Dolma's compressed files of lines are named .json.gz; a plain .json is one text.
bool is_json_lines(std::string_view name) {
  const std::string_view plain = without_compression(name);
  return plain.ends_with(".jsonl") || (plain.size() < name.size() && plain.ends_with(".json"));
}

/// The compressed files that are sure to hold text: others may be archives of anything.
bool is_packed_text(std::string_view name) {
  return compression_of(name) != Compression::kNone &&
         (is_json_lines(name) || without_compression(name).ends_with(".txt"));
}

/// Folders of a source tree that hold no sources of its own.
bool is_skipped_folder(const std::string& name) {
  return name.starts_with(".") || name == "__pycache__" || name == "node_modules";
}

/// "python3.11" -> 11, others -> -1.
int minor_version(const std::string& name) {
  constexpr std::string_view kPrefix = "python3.";
  if (!name.starts_with(kPrefix)) return -1;
  return number_in<int>(std::string_view(name).substr(kPrefix.size())).value_or(-1);
}

/// The lib folders beside the bin folders of PATH, then the usual ones.
std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  for (const fs::path& bin : folders_of_path()) {
    if (bin.is_absolute()) folders.push_back(bin.parent_path() / "lib");
  }
  for (const char* usual : {"/usr/lib", "/usr/local/lib"}) folders.emplace_back(usual);
  return folders;
}

}  // namespace

fs::path find_default_corpus() {
  fs::path best;
  int best_minor = -1;
  for (const fs::path& folder : library_folders()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const int minor = minor_version(entry.path().filename().string());
      // Virtual environments have such a folder too, without the library in it.
      if (minor > best_minor && fs::exists(entry.path() / "os.py", error) &&
          fs::exists(entry.path() / "json" / "decoder.py", error)) {
        best = fs::canonical(entry.path());
        best_minor = minor;
      }
    }
  }
  if (best_minor < 0) {
    throw InputError(
        "no default corpus: this machine has no Python with its standard library's sources; "
        "install python3 or name your own data");
  }
  return best;
}

Corpus::Corpus(CorpusOptions options) : options_(std::move(options)) {
  if (options_.inputs.empty()) {
    options_.inputs = {find_default_corpus().string()};
    // The library alone: neither what pip put beside it nor its tests, which not every system has.
    options_.include = {"*.py"};
    for (const char* folder : {"site-packages", "dist-packages", "test", "tests", "idle_test"}) {
      options_.exclude.push_back(fmt::format("{}/*", folder));
      options_.exclude.push_back(fmt::format("*/{}/*", folder));
    }
  }
  for (const std::string& input : options_.inputs) {
    const fs::path path(input);
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) fail_to_read(path, error ? error.message() : "no such file or folder");
    if (fs::is_directory(status)) {
      add_folder(path);
      continue;
    }
    if (!fs::is_regular_file(status)) fail_to_read(path, "neither a regular file nor a folder");
    if (is_of_chats() && !is_json_lines(input)) {
      fail_to_read(path, "chats are lines of files that are named .jsonl, .jsonl.gz or .jsonl.zst");
    }
    files_.push_back({.path = path,
                      .name = input,
                      .kind = is_json_lines(input) ? Kind::kJsonLines : Kind::kText,
                      .num_bytes = static_cast<int64_t>(fs::file_size(path, error))});
    if (error) fail_to_read(path, error.message());
  }
  if (files_.empty()) {
    throw InputError(fmt::format("no text files in '{}': check the folder and the include patterns",
                                 options_.inputs.front()));
  }
  for (File& file : files_) {
    file.begin = total_bytes_;
    total_bytes_ += file.num_bytes;
  }
}

bool Corpus::wants(const fs::path& path, const std::string& name) const {
  const auto among = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(pattern, name); });
  };
  if (among(options_.exclude) || (is_of_chats() && !is_json_lines(name))) return false;
  if (!options_.include.empty()) return among(options_.include);
  return is_packed_text(name) || looks_like_text(path);
}

void Corpus::add_folder(const fs::path& folder) {
  const size_t first = files_.size();
  list_folder(folder, folder);
  std::sort(files_.begin() + static_cast<ptrdiff_t>(first), files_.end(),
            [](const File& a, const File& b) { return a.name < b.name; });
}

// Not fs::recursive_directory_iterator: its errors do not name the folder.
void Corpus::list_folder(const fs::path& folder, const fs::path& root) {
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  for (; !error && entry != fs::end(entry); entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string file_name = path.filename().string();
    const fs::file_status status = entry->status(error);
    if (!fs::status_known(status)) fail_to_read(path, error.message());
    error.clear();                   // A link to nothing is no failure; it is passed over below.
    if (fs::is_directory(status)) {  // Not behind links: one may lead back here.
      if (!is_skipped_folder(file_name) && !entry->is_symlink()) list_folder(path, root);
      continue;
    }
    if (!fs::is_regular_file(status) || file_name.starts_with(".")) continue;
    std::string name = path.lexically_relative(root).generic_string();
    if (!wants(path, name)) continue;
    const Kind kind = is_json_lines(name) ? Kind::kJsonLines : Kind::kWhole;
    files_.push_back({.path = path,
                      .name = std::move(name),
                      .kind = kind,
                      .num_bytes = static_cast<int64_t>(entry->file_size()),
                      .may_be_left_out = !options_.strict});
  }
  if (error) fail_to_read(folder, error.message());
}

std::string Corpus::fingerprint() const {
  Sha256 hash;
  hash.update(
      fmt::format("{} {} {}\n", options_.text_field, options_.document_bytes, options_.strict));
  if (is_of_chats()) hash.update(std::string_view("chats\n"));
  for (const File& file : files_) hash.update(fmt::format("{} {}\n", file.num_bytes, file.name));
  return hex(hash.finish());
}

fs::file_time_type Corpus::last_change() const {
  auto last = fs::file_time_type::min();
  std::error_code ignored;
  for (const File& file : files_) last = std::max(last, fs::last_write_time(file.path, ignored));
  return last;
}

}  // namespace atl::data
