// Files to records, records to documents.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/data/corpus.h"
#include "atoll/text/json_text.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::data {
namespace {

/// Whether a line is the mark that ends a document, and nothing else.
bool is_mark(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  return line == tokenizer::kEndOfText;
}

/// The bound of shard `index`: floor(total * index / count), which may not overflow on the way.
int64_t shard_begin(int64_t total, const Shard& shard, int64_t index) {
  return total / shard.count * index + total % shard.count * index / shard.count;
}

template <typename Json>
void set_given_id(CorpusDocument& document, const Json& json) {
  if (!json.is_object()) return;
  const auto id = json.find("id");
  if (id != json.end() && id->is_string()) document.id = id->template get<std::string>();
}

/// What a template says of a chat does not name the line.
std::string rendered(const tokenizer::ChatTemplate& chats, const nlohmann::ordered_json& json,
                     const std::string& where) {
  const auto chat = tokenizer::Chat::from_json(json, where);
  try {
    return chats.render(chat);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace

/// Cuts one file.
class Corpus::RecordReader {
 public:
  RecordReader(const CorpusOptions& options, const File& file) : options_(options), file_(file) {
    or_fault([&] {
      lines_.emplace(open());
      return true;
    });
  }

  /// Sets `record` to the next one, whose bytes live until the next call; false at the end. A fault
  /// is the last.
  bool next(CorpusRecord& record) {
    if (record.is_fault) return false;
    if (fault_.empty() && !or_fault([&] { return cut(record); })) return false;
    record.is_fault = !fault_.empty();
    record.bytes = record.is_fault ? fault_ : text_;
    record.bytes_done = file_.begin + (lines_ ? lines_->source().packed_offset() : file_.num_bytes);
    return true;
  }

  /// No shard cuts the file.
  bool is_whole() const {
    return file_.kind == Kind::kWhole || !lines_ ||
           lines_->source().compression() != Compression::kNone;
  }
  /// Where a shard sees the record that was given last: a byte of all files.
  int64_t position() const { return file_.begin + (is_whole() ? 0 : offset_); }

 private:
  LineReader open() const { return {ByteSource(file_.path), options_.max_document_bytes}; }

  /// What `read` says; true with a fault where the file is damaged and may be left out.
  bool or_fault(const std::function<bool()>& read) {
    try {
      return read();
    } catch (const DamagedFile& damage) {
      if (!file_.may_be_left_out) throw;
      fault_ = damage.what();
      return true;
    }
  }

  bool cut(CorpusRecord& record) {
    if (file_.kind == Kind::kJsonLines) {
      if (!lines_->next(text_)) return false;
      record.location = record.first_line = lines_->number();
      offset_ = lines_->offset();
    } else {
      if (!next_text()) return false;
      record.location = ++number_;
      record.first_line = first_line_;
    }
    return true;
  }

  /// A text file is cut at marks if it has one anywhere, so it is read twice.
  bool has_marks() const {
    if (file_.kind == Kind::kWhole) return false;
    LineReader lines = open();
    std::string line;
    while (lines.next(line)) {
      if (is_mark(line)) return true;
      throw_if_interrupted();
    }
    return false;
  }

  bool next_text() {
    if (!is_marked_) is_marked_ = has_marks();
    text_.clear();
    bool has_begun = false;
    while (lines_->next(line_)) {
      if (!has_begun) {
        first_line_ = lines_->number();
        offset_ = lines_->offset();
        has_begun = true;
      }
      if (*is_marked_ && is_mark(line_)) return true;
      text_ += line_;
      if (std::cmp_greater(text_.size(), options_.max_document_bytes)) {
        throw InputError(
            fmt::format("'{}' line {}: the document that begins here is longer than {} bytes",
                        file_.path.string(), first_line_, options_.max_document_bytes));
      }
      const bool is_cut = file_.kind == Kind::kText && !*is_marked_;
      if (is_cut && std::cmp_greater(text_.size(), options_.document_bytes)) return true;
    }
    return has_begun;
  }

  const CorpusOptions& options_;
  const File& file_;
  std::optional<LineReader> lines_;  // None where the file does not begin as its name says.
  std::string fault_;
  std::optional<bool> is_marked_;
  std::string text_;
  std::string line_;
  int64_t number_ = 0;
  int64_t first_line_ = 0;
  int64_t offset_ = 0;
};

void Corpus::for_each_record(const Shard& shard,
                             const std::function<void(const CorpusRecord&)>& visit) const {
  ATOLL_CHECK(shard.count > 0 && shard.index >= 0 && shard.index < shard.count);
  const int64_t begin = shard_begin(total_bytes_, shard, shard.index);
  // A file may have grown since it was listed; the last shard takes what came.
  const int64_t end = shard.index + 1 == shard.count
                          ? std::numeric_limits<int64_t>::max()
                          : shard_begin(total_bytes_, shard, shard.index + 1);
  for (size_t i = 0; i < files_.size(); ++i) {
    const File& file = files_[i];
    if (file.begin >= end) break;
    if (file.begin + file.num_bytes <= begin) continue;
    RecordReader reader(options_, file);
    if (reader.is_whole() && file.begin < begin) continue;
    CorpusRecord record{.file = i};
    // Whether a file that may be left out is one of lines is told by its first.
    bool is_first = file.may_be_left_out && file.kind == Kind::kJsonLines;
    while (reader.next(record) && reader.position() < end) {
      const auto first = is_first ? parse(record) : std::nullopt;
      if (reader.position() >= begin) visit(record);
      if (first && !first->fault.empty()) break;
      is_first = is_first && !first;
      throw_if_interrupted();
    }
  }
}

std::optional<CorpusDocument> Corpus::parse(const CorpusRecord& record) const {
  if (record.is_fault) return CorpusDocument{.fault = std::string(record.bytes)};
  if (!files_[record.file].may_be_left_out) return parse_or_throw(record);
  try {
    return parse_or_throw(record);
  } catch (const InputError& error) {
    return CorpusDocument{.fault = error.what()};
  }
}

std::optional<CorpusDocument> Corpus::parse_or_throw(const CorpusRecord& record) const {
  const File& file = files_[record.file];
  CorpusDocument document{.source = file.name, .location = record.location};
  if (const size_t valid = text::valid_utf8_prefix(record.bytes); valid < record.bytes.size()) {
    if (options_.strict) {
      const std::string_view before = record.bytes.substr(0, valid);
      throw InputError(fmt::format(
          "'{}' line {}, byte {}: not UTF-8; without --strict it is read as U+FFFD",
          file.path.string(), record.first_line + std::count(before.begin(), before.end(), '\n'),
          valid - (before.rfind('\n') + 1) + 1));
    }
    document.text = text::repair_utf8(record.bytes, document.num_replaced);
  } else {
    document.text = record.bytes;
  }
  if (file.kind != Kind::kJsonLines) {
    document.id =
        file.kind == Kind::kWhole ? file.name : fmt::format("{}:{}", file.name, record.location);
    if (document.text.empty()) return std::nullopt;
    return document;
  }
  if (document.text.find_first_not_of(" \t\r\n") == std::string::npos) return std::nullopt;
  if (!options_.strict) document.num_replaced += text::repair_surrogates(document.text);
  const std::string where = fmt::format("'{}' line {}", file.path.string(), record.location);
  document.id = fmt::format("{}:{}", file.name, record.location);
  parse_line(document, where);
  if (document.text.empty()) return std::nullopt;
  return document;
}

void Corpus::parse_line(CorpusDocument& document, const std::string& where) const {
  if (options_.chats) {
    // Templates may show an object's keys, in the order in which they came.
    const auto json = text::parse_json<nlohmann::ordered_json>(document.text, where);
    set_given_id(document, json);
    document.text = rendered(*options_.chats, json, where);
    return;
  }
  auto json = text::parse_json(document.text, where);
  set_given_id(document, json);
  const auto text = json.is_object() ? json.find(options_.text_field) : json.end();
  if (text == json.end() || !text->is_string()) {
    throw InputError(fmt::format("{}: no text in the field \"{}\"", where, options_.text_field));
  }
  document.text = std::move(text->get_ref<std::string&>());
}

LeftOut::File Corpus::left_out(const CorpusRecord& record, const CorpusDocument& document) const {
  return {
      .path = files_[record.file].path.string(), .first_fault = document.fault, .num_faults = 1};
}

LeftOut Corpus::for_each(
    const std::function<void(const CorpusDocument&, int64_t bytes_done)>& visit) const {
  LeftOut left_out;
  for_each_record({}, [&](const CorpusRecord& record) {
    const auto document = parse(record);
    if (!document) return;
    if (document->fault.empty()) return visit(*document, record.bytes_done);
    left_out.add(this->left_out(record, *document));
  });
  return left_out;
}

void LeftOut::add(const File& file) {
  if (!files.empty() && files.back().path == file.path) {
    files.back().num_faults += file.num_faults;
  } else {
    files.push_back(file);
  }
}

std::string describe(const LeftOut& left_out) {
  constexpr size_t kNamed = 20;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, left_out.files.size()); ++i) {
    const LeftOut::File& file = left_out.files[i];
    text += fmt::format("atoll: left out: {}", file.first_fault);
    text += file.num_faults > 1 ? fmt::format(" (and {} more)\n", file.num_faults - 1) : "\n";
  }
  if (left_out.files.empty()) return text;
  return text + fmt::format(
                    "atoll: of {} files what is not as their names say was left out; with --strict "
                    "it is an error\n",
                    left_out.files.size());
}

}  // namespace atl::data
