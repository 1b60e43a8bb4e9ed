#include "atoll/codec/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "atoll/base/error.h"

namespace atl::codec {
namespace {

constexpr std::string_view kMagic = "GGUF";

/// The kinds of values, as the format numbers them.
enum class Kind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kList,
  kU64,
  kI64,
  kF64
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  GgufContents parse() {
    if (std::string_view(text_at(take(kMagic.size()), kMagic.size())) != kMagic) {
      fail("is no GGUF file");
    }
    const auto version = number<uint32_t>();
    if (version != 2 && version != 3)
      fail(fmt::format("has version {}; 2 and 3 are read", version));
    const uint64_t num_tensors = count(kLeastTensorBytes, "tensors");
    const uint64_t num_values = count(kLeastValueBytes, "values");
    for (uint64_t i = 0; i < num_values; ++i) {
      const std::string key(text());
      if (!contents_.values.emplace(key, value(static_cast<Kind>(number<uint32_t>()), key))
               .second) {
        fail(fmt::format("has '{}' twice", key));
      }
    }
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < num_tensors; ++i) offsets.push_back(tensor());
    place_tensors(offsets);
    return std::move(contents_);
  }

 private:
  static constexpr uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;  // Without name and shape.
  static constexpr uint64_t kLeastValueBytes = 8 + 4 + 1;

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("'{}' {}", file_, what));
  }

  /// Where the next bytes are.
  const std::byte* take(uint64_t size) {
    if (size > bytes_.size() - at_)
      fail(fmt::format("is cut off: it ends at byte {}", bytes_.size()));
    const std::byte* const from = bytes_.data() + at_;
    at_ += size;
    return from;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  static std::string_view text_at(const std::byte* from, uint64_t size) {
    return {reinterpret_cast<const char*>(from), size};
  }
  std::string_view text() {
    const auto size = number<uint64_t>();
    return text_at(take(size), size);
  }
  /// How many things of at least so many bytes follow.
  uint64_t count(uint64_t least_bytes, const char* what) {
    const auto value = number<uint64_t>();
    if (value > (bytes_.size() - at_) / least_bytes) {
      fail(fmt::format("says that it has {} {}, for which it is too short", value, what));
    }
    return value;
  }

  static uint64_t least_bytes(Kind kind) {
    switch (kind) {
      case Kind::kU8:
      case Kind::kI8:
      case Kind::kBool:
        return 1;
      case Kind::kU16:
      case Kind::kI16:
        return 2;
      case Kind::kU32:
      case Kind::kI32:
      case Kind::kF32:
        return 4;
      default:
        return 8;
    }
  }

  GgufValue value(Kind kind, const std::string& key) {
    switch (kind) {
      case Kind::kF32:
        return double{number<float>()};
      case Kind::kF64:
        return number<double>();
      case Kind::kBool:
        return number<uint8_t>() != 0;
      case Kind::kText:
        return text();
      case Kind::kList:
        return list(key);
      default:
        return whole(kind, key);
    }
  }

  int64_t whole(Kind kind, const std::string& key) {
    switch (kind) {
      case Kind::kU8:
        return number<uint8_t>();
      case Kind::kI8:
        return number<int8_t>();
      case Kind::kU16:
        return number<uint16_t>();
      case Kind::kI16:
        return number<int16_t>();
      case Kind::kU32:
        return number<uint32_t>();
      case Kind::kI32:
        return number<int32_t>();
      case Kind::kI64:
        return number<int64_t>();
      case Kind::kU64: {
        const auto value = number<uint64_t>();
        if (value > uint64_t{std::numeric_limits<int64_t>::max()}) {
          fail(fmt::format("has {} as '{}', which is too large", value, key));
        }
        return static_cast<int64_t>(value);
      }
      default:
        fail(fmt::format("has a value of unknown kind {} as '{}'", static_cast<uint32_t>(kind),
                         key));
    }
  }

  GgufList list(const std::string& key) {
    const auto kind = static_cast<Kind>(number<uint32_t>());
    if (kind == Kind::kList) fail(fmt::format("has a list of lists as '{}'", key));
    const uint64_t size = count(least_bytes(kind), "entries in a list");
    GgufList values;
    for (uint64_t i = 0; i < size; ++i) {
      const GgufValue one = value(kind, key);
      if (const auto* text = std::get_if<std::string_view>(&one)) {
        values.texts.push_back(*text);
      } else if (const auto* real = std::get_if<double>(&one)) {
        values.numbers.push_back(*real);
      } else if (const auto* flag = std::get_if<bool>(&one)) {
        values.numbers.push_back(*flag ? 1 : 0);
      } else {
        values.numbers.push_back(static_cast<double>(std::get<int64_t>(one)));
      }
    }
    return values;
  }

  /// Gives where the tensor's bytes begin, counted from the first tensor's.
  uint64_t tensor() {
    GgufTensor tensor;
    tensor.name = text();
    const auto num_dimensions = number<uint32_t>();
    constexpr uint32_t kMostDimensions = 4;
    if (num_dimensions == 0 || num_dimensions > kMostDimensions) {
      fail(fmt::format("has the tensor '{}' with {} dimensions", tensor.name, num_dimensions));
    }
    for (uint32_t i = 0; i < num_dimensions; ++i) {
      constexpr uint64_t kLargest = uint64_t{1} << 40;
      const auto length = number<uint64_t>();
      if (length > kLargest) {
        fail(fmt::format("has the tensor '{}' with a length of {}", tensor.name, length));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(length));
    }
    const auto type = number<uint32_t>();
    const auto known = ggml_type(type);
    if (!known) {
      fail(
          fmt::format("has the tensor '{}' of type {}, which is not supported "
                      "(docs/formats.md lists those that are)",
                      tensor.name, type));
    }
    tensor.type = *known;
    contents_.tensors.push_back(std::move(tensor));
    return number<uint64_t>();
  }

  /// Bytes of the tensor; throws where it has no whole blocks or the file is too short for it.
  uint64_t size_of(const GgufTensor& tensor) const {
    const GgmlBlock block = ggml_block(tensor.type);
    const uint64_t most = bytes_.size() / block.num_bytes;  // Blocks.
    uint64_t num_blocks = 1;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      auto length = static_cast<uint64_t>(tensor.shape[i]);
      if (i + 1 == tensor.shape.size()) {
        if (length % block.num_values != 0) {
          fail(fmt::format("has the tensor '{}' with rows of {} values, not a multiple of {} ({})",
                           tensor.name, length, block.num_values, block.name));
        }
        length /= block.num_values;
      }
      if (length > 0 && num_blocks > most / length) {
        fail(fmt::format("is too short for the tensor '{}'", tensor.name));
      }
      num_blocks *= length;
    }
    return num_blocks * block.num_bytes;
  }

  void place_tensors(const std::vector<uint64_t>& offsets) {
    uint64_t alignment = 32;
    if (const auto found = contents_.values.find("general.alignment");
        found != contents_.values.end()) {
      const auto* value = std::get_if<int64_t>(&found->second);
      if (value == nullptr || *value <= 0 || *value > (1 << 20)) {
        fail("has a 'general.alignment' that is none");
      }
      alignment = static_cast<uint64_t>(*value);
    }
    const uint64_t begin =
        std::min<uint64_t>((at_ + alignment - 1) / alignment * alignment, bytes_.size());
    const std::span<const std::byte> data = bytes_.subspan(begin);
    struct Place {
      uint64_t begin, end;
      const std::string* name;
    };
    std::vector<Place> places;
    for (size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& tensor = contents_.tensors[i];
      const uint64_t size = size_of(tensor);
      if (offsets[i] > data.size() || size > data.size() - offsets[i]) {
        fail(fmt::format("is cut off: the tensor '{}' lies behind its end", tensor.name));
      }
      tensor.bytes = data.subspan(offsets[i], size);
      places.push_back({offsets[i], offsets[i] + size, &tensor.name});
    }
    std::set<std::string_view> names;
    for (const Place& place : places) {
      if (!names.insert(*place.name).second) {
        fail(fmt::format("has the tensor '{}' twice", *place.name));
      }
    }
    std::ranges::sort(places, {},
                      [](const Place& place) { return std::pair(place.begin, place.end); });
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i].begin < places[i - 1].end) {
        fail(fmt::format("has the tensors '{}' and '{}' over one another", *places[i - 1].name,
                         *places[i].name));
      }
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t at_ = 0;
  GgufContents contents_;
};

}  // namespace

int64_t GgufTensor::num_values() const {
  int64_t product = 1;
  for (const int64_t length : shape) product *= length;
  return product;
}

GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  return Parser(bytes, file).parse();
}

GgufFile::GgufFile(const std::filesystem::path& path)
    : path_(path), file_(path), contents_(parse_gguf(file_->bytes(), path.string())) {}

GgufFile::GgufFile(std::span<const std::byte> bytes, const std::string& name)
    : path_(name), contents_(parse_gguf(bytes, name)) {}

bool GgufFile::is_one(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  std::string begin(kMagic.size(), '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
  return begin == kMagic;
}

void GgufFile::fail(const std::string& what) const {
  throw InputError(fmt::format("'{}': {}", path_.string(), what));
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = std::ranges::find(contents_.tensors, name, &GgufTensor::name);
  return found == contents_.tensors.end() ? nullptr : &*found;
}

template <typename T>
const T* GgufFile::value(std::string_view key) const {
  const auto found = contents_.values.find(key);
  if (found == contents_.values.end()) return nullptr;
  const T* const value = std::get_if<T>(&found->second);
  if (value == nullptr) fail(fmt::format("'{}' is of another kind", key));
  return value;
}

std::optional<int64_t> GgufFile::whole(std::string_view key) const {
  const auto* found = value<int64_t>(key);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}
std::optional<double> GgufFile::real(std::string_view key) const {
  const auto* found = value<double>(key);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}
std::optional<bool> GgufFile::flag(std::string_view key) const {
  const auto* found = value<bool>(key);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}
std::optional<std::string> GgufFile::text(std::string_view key) const {
  const auto* found = value<std::string_view>(key);
  return found != nullptr ? std::optional(std::string(*found)) : std::nullopt;
}
const GgufList* GgufFile::list(std::string_view key) const { return value<GgufList>(key); }

}  // namespace atl::codec
