#include "atoll/data/document_table.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::data {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's way to say: gzip, its largest window.

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
  int64_t value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw InputError(fmt::format("{}: '{}' is not a number", where, field.substr(0, 40)));
  }
  return value;
}

struct Inflater {
  Inflater() { ATOLL_CHECK(inflateInit2(&stream, kGzipWindow) == Z_OK); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream stream{};
};

}  // namespace

std::string format_document(const Document& document) {
  return fmt::format("{},{},{},{},{}\n", document.begin, document.end, quoted(document.id),
                     quoted(document.source), document.location);
}

std::vector<Document> parse_documents(std::string_view text, int64_t num_documents,
                                      int64_t num_tokens, const std::string& name) {
  std::vector<Document> documents;
  int64_t position = 0;
  while (!text.empty()) {
    const std::string where = fmt::format("'{}' row {}", name, documents.size() + 1);
    std::vector<std::string> fields;
    bool end_of_row = false;
    while (!end_of_row && fields.size() < 6) fields.push_back(take_field(text, end_of_row));
    if (fields.size() != 5 || !end_of_row) {
      throw InputError(fmt::format("{}: expected 5 columns (start,end,id,src,loc)", where));
    }
    Document document{.begin = to_number(fields[0], where),
                      .end = to_number(fields[1], where),
                      .id = std::move(fields[2]),
                      .source = std::move(fields[3]),
                      .location = to_number(fields[4], where)};
    if (document.begin != position || document.end <= document.begin || document.end > num_tokens) {
      throw InputError(fmt::format("{}: tokens {} to {} do not follow on {} within {} tokens",
                                   where, document.begin, document.end, position, num_tokens));
    }
    position = document.end;
    documents.push_back(std::move(document));
  }
  if (std::ssize(documents) != num_documents || position != num_tokens) {
    throw InputError(
        fmt::format("'{}' describes {} documents with {} tokens, but store.json says {} with {}",
                    name, documents.size(), position, num_documents, num_tokens));
  }
  return documents;
}

void write_gzip(const std::filesystem::path& file, std::string_view text) {
  z_stream stream{};
  ATOLL_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed;
  std::string buffer(size_t{1} << 18, '\0');
  std::string_view rest = text;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    const size_t take = std::min(rest.size(), size_t{1} << 30);  // zlib counts in 32 bits.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream.avail_in = static_cast<uInt>(take);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = deflate(&stream, take == rest.size() ? Z_FINISH : Z_NO_FLUSH);
    rest.remove_prefix(take - stream.avail_in);
    packed.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  const std::span<const std::byte> piece = as_byte_span(packed);
  write_file_synced(file, {&piece, 1});
}

std::string read_gzip(const std::filesystem::path& file, size_t max_bytes) {
  const MappedFile packed(file);
  const auto fail = [&](const char* reason) {
    return InputError(fmt::format("cannot unpack '{}': {}", file.string(), reason));
  };
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::span<const std::byte> rest = packed.bytes();
  std::string text;
  std::string buffer(size_t{1} << 18, '\0');
  for (int state = Z_OK; state != Z_STREAM_END;) {
    const size_t take = std::min(rest.size(), size_t{1} << 30);  // zlib counts in 32 bits.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
    stream.avail_in = static_cast<uInt>(take);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = inflate(&stream, Z_NO_FLUSH);
    if (state == Z_BUF_ERROR) throw fail("the file is truncated");
    if (state != Z_OK && state != Z_STREAM_END) {
      throw fail(stream.msg == nullptr ? "not gzip" : stream.msg);
    }
    rest = rest.subspan(take - stream.avail_in);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    if (text.size() > max_bytes) {
      throw InputError(
          fmt::format("'{}' unpacks to more than {} bytes: it does not belong to this "
                      "store",
                      file.string(), max_bytes));
    }
  }
  if (!rest.empty()) throw fail("something was written behind its end");
  return text;
}

}  // namespace atl::data
