#pragma once
// Where documents come from: a tree of source files, text files, jsonl, each plain, gzip or zstd.
// Documents come in a fixed order (paths sorted by bytes, then position in the file), so packing
// the same files twice gives the same store. Files are read as streams: memory grows with the
// longest document, not with the file.
//
// Reading has two halves: for_each_record() cuts files, in order, on one thread; parse() makes a
// document of a record and may run on many.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/line_reader.h"
#include "atoll/tokenizer/chat_template.h"

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
  /// Given: each line of jsonl is a chat in place of an object with a text, and its text is what
  /// this template makes of it. Other files than jsonl are refused, and in folders passed over.
  std::shared_ptr<const tokenizer::ChatTemplate> chats;
  /// A text file without <|endoftext|> lines is cut at the first line end after so many bytes: as
  /// one document it could not be split into training and validation.
  int64_t document_bytes = 8192;
  /// Longer lines and documents are refused: they have to be held in memory.
  int64_t max_document_bytes = int64_t{1} << 30;
  /// Bytes that are not UTF-8 are refused; else each bad sequence is read as U+FFFD and counted. In
  /// folders, so is what is not what its name says; else it is left out and counted.
  bool strict = false;
};

/// One of `count` parts of a corpus, for as many machines: those documents that begin in bytes
/// [total * index / count, total * (index + 1) / count) of its files, one behind the other as they
/// lie on disk. A compressed file begins, with all it holds, where its first byte lies. So the
/// parts one after the other are the whole, and what is in a part depends on nothing else.
struct Shard {
  int64_t index = 0;  // From 0.
  int64_t count = 1;
};

/// A document as it was cut out of a file: nothing has been looked at yet.
struct CorpusRecord {
  std::string_view bytes;  // Alive until the visitor returns.
  bool is_fault = false;   // The bytes say why the rest of the file is left out.
  size_t file = 0;
  int64_t location = 0;    // Line (jsonl) or number of the document in the file, from 1.
  int64_t first_line = 0;  // In the file, from 1.
  int64_t bytes_done = 0;  // Of all files, as they are on disk.
};

struct CorpusDocument {
  std::string text;  // UTF-8.
  std::string id;
  std::string source;
  int64_t location = 0;
  int64_t num_replaced = 0;  // Bad sequences that became U+FFFD.
  std::string fault;         // Not empty: it is left out, and this says why.
};

/// What was in folders and is not what its name says: a line of jsonl that is none is left out, a
/// file whose first line is none, and what lies behind damage of a compressed file.
struct LeftOut {
  struct File {
    std::string path;
    std::string first_fault;
    int64_t num_faults = 0;
  };
  std::vector<File> files;  // In the order of the corpus.

  void add(const File& file);
};

/// Lines that name each file and count them; empty when nothing was left out.
std::string describe(const LeftOut& left_out);

/// The sources of Python's standard library on this machine: the newest version found. Throws
/// InputError when there is no Python.
std::filesystem::path find_default_corpus();

class Corpus {
 public:
  /// Lists the files. Throws InputError when an input is missing, unreadable or of no known kind,
  /// or when nothing is left to read.
  explicit Corpus(CorpusOptions options);

  /// Cuts the files of a shard. Throws InputError at an unreadable file and at a record that is too
  /// long, and at a damaged file unless it may be left out.
  void for_each_record(const Shard& shard,
                       const std::function<void(const CorpusRecord&)>& visit) const;

  /// Nothing when the document is empty. Throws InputError (file, line) where a line is not JSON or
  /// lacks the field, unless it may be left out, and with `strict` where bytes are not UTF-8.
  /// Thread-safe.
  std::optional<CorpusDocument> parse(const CorpusRecord& record) const;
  /// The file of a document that is left out.
  LeftOut::File left_out(const CorpusRecord& record, const CorpusDocument& document) const;

  /// Both on this thread: all documents, and how many bytes on disk are done.
  LeftOut for_each(
      const std::function<void(const CorpusDocument&, int64_t bytes_done)>& visit) const;

  /// Bytes of all files as they are on disk (for progress).
  int64_t total_bytes() const { return total_bytes_; }
  int64_t num_files() const { return std::ssize(files_); }
  /// Texts are chats: special tokens in them count as such.
  bool is_of_chats() const { return options_.chats != nullptr; }
  /// The inputs as the user named them.
  const std::vector<std::string>& sources() const { return options_.inputs; }
  /// SHA-256 in hexadecimal of all that decides where shards are cut and what they hold, but for
  /// the contents of the files: their names, sizes and how they are read.
  std::string fingerprint() const;
  /// When the file that was written last was.
  std::filesystem::file_time_type last_change() const;

 private:
  enum class Kind { kWhole, kText, kJsonLines };
  struct File {
    std::filesystem::path path;
    std::string name;  // Path inside the folder, or the file as the user named it.
    Kind kind = Kind::kWhole;
    int64_t num_bytes = 0;
    int64_t begin = 0;  // Bytes of the files before it.
    bool may_be_left_out = false;
  };
  class RecordReader;

  void add_folder(const std::filesystem::path& folder);
  /// The files in `folder`, which is `root` or inside it, in no order.
  void list_folder(const std::filesystem::path& folder, const std::filesystem::path& root);
  bool wants(const std::filesystem::path& path, const std::string& name) const;
  std::optional<CorpusDocument> parse_or_throw(const CorpusRecord& record) const;
  /// Sets text and id of a document whose text is a line of jsonl so far. `where` is that line.
  void parse_line(CorpusDocument& document, const std::string& where) const;

  CorpusOptions options_;
  std::vector<File> files_;
  int64_t total_bytes_ = 0;
};

}  // namespace atl::data
