#include "atoll/data/corpus.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/data/json_text.h"
#include "atoll/data/tokenizer.h"
#include "atoll/data/utf8.h"

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
  return valid_utf8_prefix(head) + kLongestCharacter > head.size();
}

bool is_json_lines(const std::string& name) {
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
}

/// Folders of a source tree that hold no sources of its own.
bool is_skipped_folder(const std::string& name) {
  return name.starts_with(".") || name == "__pycache__" || name == "node_modules";
}

/// "python3.11" -> 11, others -> -1.
int minor_version(const std::string& name) {
  constexpr std::string_view kPrefix = "python3.";
  int minor = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, minor);
  return error == std::errc() && stop == end ? minor : -1;
}

/// The lib folders beside the bin folders of PATH, then the usual ones.
std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const fs::path bin(rest.substr(0, colon));
    if (bin.is_absolute()) folders.push_back(bin.parent_path() / "lib");
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  for (const char* usual : {"/usr/lib", "/usr/local/lib"}) folders.emplace_back(usual);
  return folders;
}

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

/// The lines of a plain or gzip file, one at a time, however long the file.
class LineReader {
 public:
  explicit LineReader(const fs::path& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail_to_read(path, std::strerror(errno));
    gzbuffer(file_.get(), 1 << 18);
  }
  bool next(std::string& line) {
    line.clear();
    char buffer[1 << 16];
    while (gzgets(file_.get(), buffer, sizeof(buffer)) != nullptr) {
      line += buffer;
      if (line.ends_with('\n')) return true;
    }
    int code = Z_OK;
    const char* reason = gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) {
      fail_to_read(path_, code == Z_BUF_ERROR ? "the file is truncated" : reason);
    }
    return !line.empty();
  }
  /// Bytes of the file on disk consumed so far.
  int64_t offset() const { return gzoffset(file_.get()); }

 private:
  fs::path path_;
  std::unique_ptr<gzFile_s, CloseGzip> file_;
};

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
        "no default corpus: this machine has no Python with its standard library's "
        "sources; install python3 or name your own data");
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
    if (input.ends_with(".zst") || (input.ends_with(".gz") && !is_json_lines(input))) {
      throw InputError(
          fmt::format("'{}': this compression is not read here (.jsonl.gz is); "
                      "decompress the file first",
                      input));
    }
    files_.push_back({path, input, is_json_lines(input) ? Kind::kJsonLines : Kind::kText,
                      static_cast<int64_t>(fs::file_size(path, error))});
    if (error) fail_to_read(path, error.message());
  }
  if (files_.empty()) {
    throw InputError(fmt::format("no text files in '{}': check the folder and the include patterns",
                                 options_.inputs.front()));
  }
  for (const File& file : files_) total_bytes_ += file.num_bytes;
}

bool Corpus::wants(const fs::path& path, const std::string& name) const {
  const auto among = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(pattern, name); });
  };
  if (among(options_.exclude)) return false;
  return options_.include.empty() ? looks_like_text(path) : among(options_.include);
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
    files_.push_back({path, std::move(name), kind, static_cast<int64_t>(entry->file_size())});
  }
  if (error) fail_to_read(folder, error.message());
}

void Corpus::for_each(const Visit& visit) const {
  bytes_done_ = 0;
  int64_t before = 0;
  for (const File& file : files_) {
    switch (file.kind) {
      case Kind::kWhole:
        read_whole(file, visit);
        break;
      case Kind::kText:
        read_text(file, visit);
        break;
      case Kind::kJsonLines:
        read_json_lines(file, visit);
        break;
    }
    before += file.num_bytes;
    bytes_done_ = before;
  }
}

void Corpus::read_whole(const File& file, const Visit& visit) {
  const std::string text = read_file(file.path);
  if (!text.empty()) visit({text, file.name, file.name, 1});
}

void Corpus::read_text(const File& file, const Visit& visit) const {
  const std::string text = read_file(file.path);
  const std::string mark = std::string(kEndOfText) + "\n";
  const bool marked = text.starts_with(mark) || text.find("\n" + mark) != std::string::npos;
  int64_t number = 0;
  const auto give = [&](std::string_view document) {
    ++number;
    if (!document.empty()) {
      visit({document, fmt::format("{}:{}", file.name, number), file.name, number});
    }
  };
  const int64_t files_before = bytes_done_;
  std::string_view rest = text;
  while (!rest.empty()) {
    bytes_done_ = files_before + static_cast<int64_t>(text.size() - rest.size());
    size_t end = rest.size();
    size_t next = rest.size();
    if (marked) {
      // A document ends where a line is the mark and nothing else.
      end = rest.starts_with(mark) ? 0 : rest.find("\n" + mark);
      if (end != 0 && end != std::string_view::npos) ++end;
      if (end == std::string_view::npos) end = rest.size();
      next = std::min(end + mark.size(), rest.size());
    } else if (std::cmp_less(options_.document_bytes, rest.size())) {
      const size_t line_end = rest.find('\n', static_cast<size_t>(options_.document_bytes));
      next = line_end == std::string_view::npos ? rest.size() : line_end + 1;
      end = next;
    }
    give(rest.substr(0, end));
    rest.remove_prefix(next);
  }
}

void Corpus::read_json_lines(const File& file, const Visit& visit) const {
  LineReader reader(file.path);
  std::string line;
  const int64_t files_before = bytes_done_;
  for (int64_t number = 1; reader.next(line); ++number) {
    if (line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    bytes_done_ = files_before + reader.offset();
    const auto fail = [&](const std::string& what) {
      return InputError(fmt::format("'{}' line {}: {}", file.path.string(), number, what));
    };
    const auto json = parse_json(line, fmt::format("'{}' line {}", file.path.string(), number));
    const auto text = json.is_object() ? json.find(options_.text_field) : json.end();
    if (text == json.end() || !text->is_string()) {
      throw fail(fmt::format("no text in the field \"{}\"", options_.text_field));
    }
    const auto given_id = json.find("id");
    std::string id = fmt::format("{}:{}", file.name, number);
    if (given_id != json.end() && given_id->is_string()) id = given_id->get<std::string>();
    const auto& contents = text->get_ref<const std::string&>();
    if (!contents.empty()) visit({contents, std::move(id), file.name, number});
  }
}

}  // namespace atl::data
