#include "atoll/data/document_table.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/number.h"

namespace atl::data {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: gzip, its largest window.
constexpr size_t kPieceBytes = size_t{1} << 18;
constexpr size_t kMaxRowBytes = 8192;

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string result = "\"";
  for (const char c : field) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

/// Cuts one field off the front of `rest`; `end_of_row` tells whether a line end followed it.
std::string take_field(std::string_view& rest, bool& end_of_row) {
  std::string field;
  bool in_quotes = false;
  size_t at = 0;
  for (; at < rest.size(); ++at) {
    const char c = rest[at];
    if (c == '"') {
      const bool doubled = in_quotes && at + 1 < rest.size() && rest[at + 1] == '"';
      if (doubled) {
        field += c;
        ++at;
      } else {
        in_quotes = !in_quotes;
      }
    } else if (!in_quotes && (c == ',' || c == '\n')) {
      break;
    } else {
      field += c;
    }
  }
  end_of_row = at == rest.size() || rest[at] == '\n';
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return field;
}

int64_t to_number(const std::string& field, const std::string& where) {
  if (const auto value = number_in<int64_t>(field)) return *value;
  throw InputError(fmt::format("{}: '{}' is not a number", where, field.substr(0, 40)));
}

/// Whether a quoted field goes on behind the end of `row`.
bool is_open(std::string_view row) { return std::count(row.begin(), row.end(), '"') % 2 != 0; }

}  // namespace

std::string format_document(const Document& document) {
  return fmt::format("{},{},{},{},{}\n", document.begin, document.end, quoted(document.id),
                     quoted(document.source), document.location);
}

struct DocumentWriter::Gzip {
  Gzip() {
    ATOLL_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  }
  ~Gzip() { deflateEnd(&stream); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  z_stream stream{};
};

DocumentWriter::DocumentWriter(const std::filesystem::path& file)
    : file_(file), gzip_(std::make_unique<Gzip>()) {}

DocumentWriter::~DocumentWriter() = default;

void DocumentWriter::add(const Document& document) {
  rows_ += format_document(document);
  if (rows_.size() >= kPieceBytes) flush(false);
}

void DocumentWriter::flush(bool is_last) {
  std::string_view rest = rows_;
  std::string packed(kPieceBytes, '\0');
  z_stream& stream = gzip_->stream;
  int state = Z_OK;
  do {
    const size_t size = std::min(rest.size(), kPieceBytes);
    const bool ends = is_last && size == rest.size();
    if (size < kPieceBytes && !ends) break;
    hash_.update(rest.substr(0, size));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream.avail_in = static_cast<uInt>(size);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      state = deflate(&stream, ends ? Z_FINISH : Z_NO_FLUSH);
      file_.append(as_byte_span(packed).first(packed.size() - stream.avail_out));
    } while (stream.avail_out == 0);
    rest.remove_prefix(size);
  } while (state != Z_STREAM_END);
  rows_.erase(0, rows_.size() - rest.size());
}

std::string DocumentWriter::finish() {
  flush(true);
  file_.finish();
  return hex(hash_.finish());
}

DocumentReader::DocumentReader(ByteSource source, int64_t num_tokens)
    : lines_(std::move(source), kMaxRowBytes), num_tokens_(num_tokens) {}

std::optional<Document> DocumentReader::next() {
  const std::string& name = lines_.source().name();
  if (!lines_.next(row_)) {
    if (position_ == num_tokens_) return std::nullopt;
    throw InputError(fmt::format("'{}' ends after {} documents with {} tokens, of {}", name,
                                 num_documents_, position_, num_tokens_));
  }
  ++num_documents_;
  const std::string where = fmt::format("'{}' row {}", name, num_documents_);
  while (is_open(row_) && row_.size() < kMaxRowBytes && lines_.next(line_)) row_ += line_;
  hash_.update(row_);
  if (row_.ends_with("\r\n")) row_.erase(row_.size() - 2, 1);  // As Python's csv module writes.
  std::string_view rest = row_;
  std::vector<std::string> fields;
  bool end_of_row = false;
  while (!end_of_row && fields.size() < 6) fields.push_back(take_field(rest, end_of_row));
  if ((fields.size() != 5 && fields.size() != 2) || !end_of_row || !rest.empty()) {
    throw InputError(fmt::format("{}: expected 5 columns (start,end,id,src,loc)", where));
  }
  fields.resize(5);
  Document document{.begin = to_number(fields[0], where),
                    .end = to_number(fields[1], where),
                    .id = std::move(fields[2]),
                    .source = std::move(fields[3]),
                    .location = fields[4].empty() ? 0 : to_number(fields[4], where)};
  const auto fail = [&](const std::string& what) {
    throw InputError(
        fmt::format("{}: tokens {} to {} {}", where, document.begin, document.end, what));
  };
  if (document.begin > position_) fail(fmt::format("leave a gap behind {}", position_));
  if (document.begin < position_) fail(fmt::format("overlap with those up to {}", position_));
  if (document.end <= document.begin) fail("are none");
  if (document.end > num_tokens_)
    fail(fmt::format("reach past the end: there are {}", num_tokens_));
  position_ = document.end;
  return document;
}

}  // namespace atl::data
