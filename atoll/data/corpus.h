#pragma once
// Where documents come from: a tree of source files, a text file, jsonl (plain or gzip). Documents
// come in a fixed order (paths sorted by bytes, then position in the file), so packing the same
// files twice gives the same store. One owner thread.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::data {

struct CorpusOptions {
  /// Folders, text files, .jsonl files, in any mixture. None: the default corpus.
  std::vector<std::string> inputs;
  /// Shell patterns over the files of a folder: with a '/' they match the path inside the folder,
  /// without one the file's name. No include pattern: every file that looks like text.
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  /// The field of a jsonl object that holds the text.
  std::string text_field = "text";
  /// A text file without <|endoftext|> lines is cut at the first line end after so many bytes: as
  /// one document it could not be split into training and validation.
  int64_t document_bytes = 8192;
};

/// `text` lives until the visitor returns.
struct CorpusDocument {
  std::string_view text;
  std::string id;
  std::string source;
  int64_t location = 0;
};

/// The sources of Python's standard library on this machine: the newest version found. Throws
/// InputError when there is no Python.
std::filesystem::path find_default_corpus();

class Corpus {
 public:
  /// Lists the files. Throws InputError when an input is missing, unreadable or of no known kind,
  /// or when nothing is left to read.
  explicit Corpus(CorpusOptions options);

  /// Calls `visit` for each document that is not empty. Throws InputError at an unreadable file and
  /// at a line that is not JSON or lacks the field (file, line number).
  void for_each(const std::function<void(const CorpusDocument&)>& visit) const;

  /// Bytes of all files as they are on disk (for progress).
  int64_t total_bytes() const { return total_bytes_; }
  /// Bytes of the files read so far by for_each().
  int64_t bytes_done() const { return bytes_done_; }
  int64_t num_files() const { return std::ssize(files_); }
  /// The inputs as the user named them.
  const std::vector<std::string>& sources() const { return options_.inputs; }

 private:
  enum class Kind { kWhole, kText, kJsonLines };
  struct File {
    std::filesystem::path path;
    std::string name;  // Path inside the folder, or the file as the user named it.
    Kind kind = Kind::kWhole;
    int64_t num_bytes = 0;
  };
  using Visit = std::function<void(const CorpusDocument&)>;

  void add_folder(const std::filesystem::path& folder);
  /// The files in `folder`, which is `root` or inside it, in no order.
  void list_folder(const std::filesystem::path& folder, const std::filesystem::path& root);
  bool wants(const std::filesystem::path& path, const std::string& name) const;
  static void read_whole(const File& file, const Visit& visit);
  void read_text(const File& file, const Visit& visit) const;
  void read_json_lines(const File& file, const Visit& visit) const;

  CorpusOptions options_;
  std::vector<File> files_;
  int64_t total_bytes_ = 0;
  mutable int64_t bytes_done_ = 0;
};

}  // namespace atl::data
