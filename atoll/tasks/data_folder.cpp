#include "atoll/tasks/data_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/tasks/json.h"
#include "atoll/text/json_text.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 100'000;
constexpr int kMaxDepth = 8;

/// What `datasets` takes for a split's name within that of a file, in groups of one meaning.
const std::vector<std::set<std::string>>& usual_names() {
  static const std::vector<std::set<std::string>> kNames{{"train", "training"},
                                                         {"validation", "valid", "val", "dev"},
                                                         {"test", "testing", "eval", "evaluation"}};
  return kNames;
}

bool is_usual(const std::string& word) {
  return std::ranges::any_of(usual_names(),
                             [&](const auto& names) { return names.contains(word); });
}

struct DataFile {
  fs::path path;
  std::string split;
  std::string config;   // The folders above it that say neither split nor version.
  std::string version;  // Those that say a version.
  std::string kind;     // Of the file.
};

/// ".jsonl" of x.jsonl.gz; empty for what holds no documents.
std::string kind_of(const fs::path& file) {
  fs::path name = file.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  const std::string kind = name.extension().string();
  const bool is_known = kind == ".jsonl" || kind == ".json" || is_table(name);
  return is_known ? kind : "";
}

std::string stem_of(const fs::path& file) {
  const std::string name = file.filename();
  return name.substr(0, name.rfind(kind_of(file)));
}

/// The split that a name without its ending tells of: NAME-SPLIT-00000-of-00002, SPLIT-..., or one
/// with a usual name between its separators.
std::optional<std::string> split_in(const std::string& stem) {
  static const std::regex kPart("(?:.*-)?([A-Za-z_][A-Za-z0-9_.]*)-[0-9]{5}-of-[0-9]{5}(?:-.*)?");
  std::smatch match;
  if (std::regex_match(stem, match, kPart)) return match[1].str();
  std::optional<std::string> found;
  for (size_t begin = 0; begin <= stem.size();) {
    const size_t end = std::min(stem.find_first_of("-_. ", begin), stem.size());
    const std::string word = stem.substr(begin, end - begin);
    if (is_usual(word)) found = word;
    begin = end + 1;
  }
  return found;
}

bool is_version_or_hash(const std::string& folder) {
  static const std::regex kVersion("[0-9]+[.][0-9]+[.][0-9]+|[0-9a-f]{16,64}");
  return std::regex_match(folder, kVersion);
}

Json read_json(const fs::path& file) {
  return text::parse_json<Json>(read_file(file), fmt::format("'{}'", file.string()));
}

class FolderReader {
 public:
  /// A folder called as the `config` that is asked for is no version.
  FolderReader(const fs::path& folder, std::string config)
      : root_(snapshot_in(folder)), wanted_config_(std::move(config)) {
    add(root_, 0);
  }

  const std::vector<DataFile>& files() const { return files_; }

 private:
  /// The Hub's cache keeps versions under their commits, and says which one a branch is.
  static fs::path snapshot_in(const fs::path& folder) {
    if (!fs::is_directory(folder)) {
      throw InputError(fmt::format("'{}' is not a folder", folder.string()));
    }
    const fs::path head = folder / "refs" / "main";
    if (!fs::is_directory(folder / "snapshots") || !fs::exists(head)) return folder;
    std::string commit = read_file(head);
    while (!commit.empty() && commit.back() == '\n') commit.pop_back();
    if (commit.empty() || commit.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw InputError(fmt::format("'{}' is not the name of a commit", head.string()));
    }
    return folder / "snapshots" / commit;
  }

  void add(const fs::path& folder, int depth) {
    if (depth > kMaxDepth || !fs::is_directory(folder)) return;
    if (fs::exists(folder / "state.json")) {
      add_saved(folder);
      return;
    }
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(folder)) {
      // Links to folders may lead round in circles; the Hub's cache has links to files alone.
      if (entry.is_symlink() && entry.is_directory()) continue;
      entries.push_back(entry.path());
    }
    num_entries_ += entries.size();
    if (num_entries_ > kMaxFiles) {
      throw InputError(fmt::format("'{}' has more than {} files", root_.string(), kMaxFiles));
    }
    std::ranges::sort(entries);
    for (const fs::path& entry : entries) {
      if (entry.filename().string().starts_with('.')) continue;
      if (fs::is_directory(entry)) {
        add(entry, depth + 1);
      } else if (!kind_of(entry).empty()) {
        add_named(entry);
      }
    }
  }

  /// What Dataset.save_to_disk() writes.
  void add_saved(const fs::path& folder) {
    const fs::path file = folder / "state.json";
    const Json state = read_json(file);
    const auto fail = [&](const std::string& what) {
      throw InputError(fmt::format("'{}' {}", file.string(), what));
    };
    if (!state.is_object()) fail("is not a JSON object");
    const Json parts = state.value("_data_files", Json());
    const Json indices = state.value("_indices_data_files", Json());
    if (!parts.is_array() || (indices.is_array() && !indices.empty())) {
      fail(
          "is not that of a data set of `datasets`, or of one whose rows are chosen by an index: "
          "save "
          "it again with save_to_disk()");
    }
    // In a DatasetDict the folder is the split; else the rows tell which one they once were.
    const Json named = state.value("_split", Json());
    const std::string name = folder.filename();
    const bool is_part = fs::exists(folder.parent_path() / "dataset_dict.json");
    const std::string split = !is_part && named.is_string() ? named.get<std::string>() : name;
    const bool is_folder_of_split = split == name && !fs::equivalent(folder, root_);
    const fs::path above = is_folder_of_split ? folder.parent_path() : folder;
    for (const Json& part : parts) {
      const Json entry = part.is_object() ? part.value("filename", Json()) : Json();
      const fs::path file_name = entry.is_string() ? entry.get<std::string>() : "";
      if (file_name != file_name.filename() || file_name.extension() != ".arrow") {
        fail(fmt::format("has {} where the name of an .arrow file beside it should be",
                         part.dump()));
      }
      push({.path = folder / file_name, .split = split, .kind = ".arrow"}, above);
    }
  }

  void add_named(const fs::path& file) {
    const std::string stem = stem_of(file);
    std::optional<std::string> split = split_in(stem);
    // The cache of `datasets`: NAME-SPLIT.arrow, whatever a split is called.
    const bool is_part = stem.find("-of-") != std::string::npos;
    if (kind_of(file) == ".arrow" && !is_part && stem.rfind('-') != std::string::npos) {
      split = stem.substr(stem.rfind('-') + 1);
    }
    fs::path above = file.parent_path();
    if (!split) {  // CONFIG/SPLIT/0000.parquet
      const std::string folder = above.filename();
      if (fs::equivalent(above, root_) || !is_usual(folder)) return;
      split = folder;
      above = above.parent_path();
    }
    push({.path = file, .split = *split, .kind = kind_of(file)}, above);
  }

  /// With what the folders above it tell.
  void push(DataFile file, const fs::path& above) {
    for (const fs::path& part : above.lexically_relative(root_)) {
      const std::string name = part;
      if (name == "." || name == "data") continue;
      const bool is_version = name != wanted_config_ && is_version_or_hash(name);
      std::string& path = is_version ? file.version : file.config;
      path += (path.empty() ? "" : "/") + name;
    }
    files_.push_back(std::move(file));
  }

  fs::path root_;
  std::string wanted_config_;
  size_t num_entries_ = 0;
  std::vector<DataFile> files_;
};

}  // namespace

bool is_table(const fs::path& file) {
  return file.extension() == ".parquet" || file.extension() == ".arrow";
}

SplitFiles find_splits(const fs::path& folder, const std::string& config) {
  const FolderReader reader(folder, config);
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("'{}' {}", folder.string(), what));
  };
  if (reader.files().empty()) {
    fail(
        "has no file whose name tells its split, as validation.jsonl or "
        "data/test-00000-of-00001.parquet do");
  }
  std::set<std::string> configs;
  for (const DataFile& file : reader.files()) configs.insert(file.config);
  // Without folders of configs, the folder is that of the one that is asked for.
  std::string chosen = config;
  if (!configs.contains(config)) {
    const bool is_only = configs.size() == 1 && (config.empty() || configs.contains(""));
    if (!is_only) {
      configs.erase("");
      fail(fmt::format(
          "has the configs {}, and the task asks for {}", fmt::join(configs, ", "),
          config.empty() ? "none of them (dataset_name)" : fmt::format("\"{}\"", config)));
    }
    chosen = *configs.begin();
  }
  SplitFiles splits;
  std::map<std::string, std::string> kinds;
  std::map<std::string, std::string> versions;
  for (const DataFile& file : reader.files()) {
    if (file.config != chosen) continue;
    const auto [version, is_first] = versions.emplace(file.split, file.version);
    if (version->second != file.version) {
      fail(
          fmt::format("has the split \"{}\" in several versions, {} and {}; name the folder of one",
                      file.split, version->second, file.version));
    }
    const auto [kind, is_new] = kinds.emplace(file.split, file.kind);
    if (kind->second != file.kind) {
      fail(fmt::format("has the split \"{}\" in {} and {} files; name a folder with one of them",
                       file.split, kind->second, file.kind));
    }
    splits[file.split].push_back(file.path);
  }
  return splits;
}

const std::vector<fs::path>* files_of(const SplitFiles& splits, const std::string& split) {
  if (const auto found = splits.find(split); found != splits.end()) return &found->second;
  const std::vector<fs::path>* files = nullptr;
  for (const std::set<std::string>& names : usual_names()) {
    if (!names.contains(split)) continue;
    for (const std::string& name : names) {
      const auto found = splits.find(name);
      if (found == splits.end()) continue;
      if (files != nullptr) return nullptr;
      files = &found->second;
    }
  }
  return files;
}

}  // namespace atl::tasks
