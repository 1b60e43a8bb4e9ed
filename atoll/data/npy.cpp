#include "atoll/data/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "atoll/base/error.h"

namespace atl::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;
constexpr size_t kMaxDictionaryBytes = 65'535;  // What version 1 can say; ours need 128.
constexpr int64_t kMaxRows = int64_t{1} << 48;  // So that no product of sizes overflows.

struct TypeName {
  NumberType type;
  std::string_view name;
};
constexpr std::array kTypeNames = {
    TypeName{NumberType::kU8, "|u1"},  TypeName{NumberType::kU16, "<u2"},
    TypeName{NumberType::kU32, "<u4"}, TypeName{NumberType::kI32, "<i4"},
    TypeName{NumberType::kI64, "<i8"},
};

/// Reads the Python dictionary of a header: three keys, in any order, each once.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  NpyHeader read() {
    std::optional<std::string_view> type;
    std::optional<bool> fortran_order;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !type) {
        type = quoted();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        read_shape();
        has_shape = true;
      } else {
        fail(fmt::format("has an unknown or repeated key '{}'", key.substr(0, 40)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!rest_.empty()) fail("has something behind its dictionary");
    if (!type || !fortran_order || !has_shape) fail("lacks descr, fortran_order or shape");
    if (*fortran_order && header_.is_matrix) fail("is in Fortran order; save it in C order");
    set_type(*type);
    return header_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("'{}': the .npy header {}", name_, what));
  }
  void skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
  }
  bool accept(char wanted) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("is damaged: no '{}' where one must be", wanted));
  }
  std::string_view quoted() {
    skip_spaces();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') fail("is damaged or describes no plain array");
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail("is damaged: a quote is never closed");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool boolean() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "True";
    }
    fail("is damaged: fortran_order is neither True nor False");
  }
  int64_t count() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0 || value > kMaxRows) fail("has a shape out of range");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  void read_shape() {
    expect('(');
    header_.num_rows = count();
    expect(',');  // A tuple of one number has a comma, too.
    if (accept(')')) return;
    header_.num_columns = count();
    header_.is_matrix = true;
    if (header_.num_columns > kMaxRows / std::max<int64_t>(header_.num_rows, 1)) {
      fail("has a shape out of range");
    }
    accept(',');
    if (!accept(')')) fail("has more than two dimensions");
  }
  void set_type(std::string_view name) {
    for (const TypeName& known : kTypeNames) {
      if (known.name != name) continue;
      header_.type = known.type;
      return;
    }
    fail(fmt::format("has numbers of the type '{}'; read are |u1, <u2, <u4, <i4, <i8",
                     name.substr(0, 40)));
  }

  std::string_view rest_;
  const std::string& name_;
  NpyHeader header_;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

size_t NpyHeader::data_bytes() const {
  return static_cast<size_t>(num_rows) * static_cast<size_t>(num_columns) * number_bytes(type);
}

std::string NpyHeader::shape() const {
  return is_matrix ? fmt::format("({}, {})", num_rows, num_columns)
                   : fmt::format("({},)", num_rows);
}

bool has_npy_magic(std::span<const std::byte> bytes) { return text_of(bytes).starts_with(kMagic); }

std::string format_npy_header(const NpyHeader& header) {
  const auto* type = std::find_if(kTypeNames.begin(), kTypeNames.end(),
                                  [&](const TypeName& known) { return known.type == header.type; });
  ATOLL_CHECK(type != kTypeNames.end());
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 type->name, header.shape());
  // numpy leaves room for the number of rows to grow to 21 digits, then fills up to the alignment.
  text.append(21 - fmt::formatted_size("{}", header.num_rows), ' ');
  const size_t before = kMagic.size() + 4;
  text.append(kAlignment - (before + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  std::string result(kMagic);
  result +=
      {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return result + text;
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name) {
  const auto fail = [&](const std::string& what) {
    return InputError(fmt::format("'{}' {}", name, what));
  };
  if (!has_npy_magic(bytes)) throw fail("is not a .npy file: it does not begin with numpy's magic");
  ByteReader reader(bytes.subspan(kMagic.size()));
  if (reader.remaining() < 6) throw fail("is truncated: its header is cut off");
  const auto major = reader.get<uint8_t>();
  const auto minor = reader.get<uint8_t>();
  if ((major != 1 && major != 2) || minor != 0) {
    throw fail(fmt::format("has .npy version {}.{}; read are 1.0 and 2.0", major, minor));
  }
  const size_t length = major == 1 ? reader.get<uint16_t>() : reader.get<uint32_t>();
  if (length > reader.remaining()) throw fail("is truncated: its header is cut off");
  if (length > kMaxDictionaryBytes) throw fail("has a header of more than 64 KiB");
  NpyHeader header = DictionaryReader(text_of(reader.get_bytes(length)), name).read();
  header.data_offset = bytes.size() - reader.remaining();
  if (reader.remaining() != header.data_bytes()) {
    throw fail(fmt::format(
        "has {} bytes of data, but its header promises {} ({} numbers of {}): it was {}",
        reader.remaining(), header.data_bytes(), header.shape(), number_name(header.type),
        reader.remaining() < header.data_bytes() ? "truncated" : "written to"));
  }
  return header;
}

NpyFile::NpyFile(const std::filesystem::path& path)
    : file_(path), header_(parse_npy_header(file_.bytes(), path.string())) {}

}  // namespace atl::data
