#include "atoll/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/spilled_array.h"
#include "atoll/codec/ggml_quantize.h"

namespace atl::weights {
namespace {

using Json = nlohmann::json;

// The format's own limit, and enough for a million tensors.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;
// Whole values of any type, and little enough to be held beside all else.
constexpr size_t kPieceBytes = size_t{8} << 20;

struct TypeName {
  DType type;
  const char* name;
  size_t bytes;
};
constexpr std::array<TypeName, 10> kTypes{{{DType::kF64, "F64", 8},
                                           {DType::kF32, "F32", 4},
                                           {DType::kF16, "F16", 2},
                                           {DType::kBF16, "BF16", 2},
                                           {DType::kI64, "I64", 8},
                                           {DType::kI32, "I32", 4},
                                           {DType::kI16, "I16", 2},
                                           {DType::kI8, "I8", 1},
                                           {DType::kU8, "U8", 1},
                                           {DType::kBool, "BOOL", 1}}};

const TypeName& entry(DType type) { return *std::ranges::find(kTypes, type, &TypeName::type); }

/// One tensor of the header, checked by itself.
class TensorReader {
 public:
  TensorReader(const std::string& file, const std::string& name, const Json& json)
      : file_(file), name_(name), json_(json) {}

  TensorView read(std::span<const std::byte> data) const {
    require(json_.is_object(), "its entry is not an object");
    TensorView tensor;
    tensor.name = name_;
    tensor.type = type();
    tensor.shape = shape();
    const Json& offsets = field("data_offsets");
    require(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                offsets[1].is_number_unsigned(),
            "its data_offsets are not two whole numbers");
    const auto begin = offsets[0].get<uint64_t>();
    const auto end = offsets[1].get<uint64_t>();
    require(begin <= end && end <= data.size(),
            fmt::format("its bytes {} to {} are not in the file, which holds {}; the file is "
                        "truncated or damaged",
                        begin, end, data.size()));
    const uint64_t wanted = size_in_bytes(tensor);
    require(end - begin == wanted,
            fmt::format("its shape and type need {} bytes, the header gives it {}", wanted,
                        end - begin));
    tensor.bytes = data.subspan(begin, end - begin);
    return tensor;
  }

 private:
  void require(bool condition, const std::string& message) const {
    if (!condition) {
      throw InputError(fmt::format("'{}': tensor '{}': {}", file_, name_, message));
    }
  }
  const Json& field(const char* key) const {
    const auto found = json_.find(key);
    require(found != json_.end(), fmt::format("'{}' is missing", key));
    return *found;
  }
  DType type() const {
    const Json& json = field("dtype");
    require(json.is_string(), "its dtype is not a text");
    const auto& text = json.get_ref<const std::string&>();
    const auto* const found = std::ranges::find_if(
        kTypes, [&](const TypeName& candidate) { return candidate.name == text; });
    require(found != kTypes.end(), fmt::format("its type '{}' is not supported", text));
    return found->type;
  }
  std::vector<int64_t> shape() const {
    const Json& json = field("shape");
    require(json.is_array() && json.size() <= 8, "its shape is not a list of at most 8 lengths");
    std::vector<int64_t> lengths;
    for (const Json& length : json) {
      require(length.is_number_unsigned() &&
                  length.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()},
              "its shape holds something other than lengths");
      lengths.push_back(static_cast<int64_t>(length.get<uint64_t>()));
    }
    return lengths;
  }
  uint64_t size_in_bytes(const TensorView& tensor) const {
    uint64_t size = entry(tensor.type).bytes;
    for (const int64_t length : tensor.shape) {
      uint64_t product = 0;
      require(!__builtin_mul_overflow(size, static_cast<uint64_t>(length), &product),
              "its shape is too large");
      size = product;
    }
    return size;
  }

  const std::string& file_;
  const std::string& name_;
  const Json& json_;
};

/// The tensors must cover the data exactly: bytes that two share, or that nobody names, mean that
/// the header is not the one the file was written with.
void require_tiling(const std::vector<TensorView>& tensors, std::span<const std::byte> data,
                    const std::string& file) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const TensorView* tensor) {
    return std::pair(tensor->bytes.data(), tensor->bytes.size());
  });
  const std::byte* expected = data.data();
  for (const TensorView* tensor : order) {
    if (tensor->bytes.data() != expected) {
      throw InputError(
          fmt::format("'{}': tensor '{}': its bytes {} those before it", file, tensor->name,
                      tensor->bytes.data() < expected ? "overlap" : "do not follow directly on"));
    }
    expected += tensor->bytes.size();
  }
  const std::byte* end = data.data() + data.size();
  if (expected != end) {
    throw InputError(
        fmt::format("'{}': {} bytes at the end belong to no tensor", file, end - expected));
  }
}

/// Discarded where it is no JSON. A key that stands twice in one object hides what the header says.
Json parse_header(std::string_view text, const auto& fail) {
  std::vector<std::set<std::string>> keys;  // Of the open object at each depth.
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto num_open = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys.resize(num_open);
      keys.emplace_back();
    }
    if (event == Json::parse_event_t::key &&
        !keys.at(num_open - 1).insert(value.get<std::string>()).second) {
      fail(fmt::format("in its header '{}' stands twice", value.get<std::string>()));
    }
    return depth <= 4;  // Deeper levels are refused before they cost stack or memory.
  };
  return Json::parse(text.begin(), text.end(), check, /*allow_exceptions=*/false);
}

/// What a file that is none of ours is likely to be, by how it begins; empty: unknown.
std::string other_format(std::span<const std::byte> contents) {
  const std::string_view begin = as_text(contents.first(std::min<size_t>(contents.size(), 4)));
  if (begin == "PK\x03\x04") return "a zip archive, as PyTorch's pickles are";
  const bool is_pickle = begin.size() > 1 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5;
  return is_pickle ? "a pickle" : "";
}

}  // namespace

size_t num_bytes(DType type) { return entry(type).bytes; }
std::string name_of(DType type) { return entry(type).name; }

void read_in_pieces(const TensorView& tensor,
                    const std::function<void(std::span<const std::byte> piece)>& take) {
  for (std::span<const std::byte> rest = tensor.bytes; !rest.empty();) {
    const auto piece = rest.first(std::min(kPieceBytes, rest.size()));
    take(piece);
    if (tensor.is_mapped) let_rest(piece);
    rest = rest.subspan(piece.size());
  }
}

Digest tensor_sha256(const TensorView& tensor) {
  Sha256 hash;
  read_in_pieces(tensor, [&](std::span<const std::byte> piece) { hash.update(piece); });
  return hash.finish();
}

std::vector<TensorView> parse_safetensors(std::span<const std::byte> contents,
                                          const std::string& file,
                                          std::map<std::string, std::string>* metadata) {
  const auto fail = [&](const std::string& message) -> void {
    throw InputError(fmt::format("'{}': {}", file, message));
  };
  // Safetensors of some lengths begin so too: it is said of what can be none.
  const auto fail_as_other = [&](const std::string& message) {
    const std::string other = other_format(contents);
    if (other.empty()) fail(message);
    fail(
        fmt::format("it looks like {}, which can run any program when it is read, and is refused; "
                    "save it as safetensors",
                    other));
  };
  if (contents.size() < kLengthBytes) fail_as_other("too short for a safetensors file");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, contents.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > contents.size() - kLengthBytes) {
    fail_as_other(
        fmt::format("its header of {} bytes is not in the file, which holds {}; not a safetensors "
                    "file, or truncated",
                    header_bytes, contents.size()));
  }
  const char* text = reinterpret_cast<const char*>(contents.data()) + kLengthBytes;
  const Json header = parse_header({text, header_bytes}, fail);
  if (!header.is_object()) fail_as_other("its header is not a JSON object");

  const std::span<const std::byte> data = contents.subspan(kLengthBytes + header_bytes);
  std::vector<TensorView> tensors;
  for (const auto& [name, json] : header.items()) {  // Sorted by name.
    if (name != "__metadata__") {
      tensors.push_back(TensorReader(file, name, json).read(data));
      continue;
    }
    if (!json.is_object()) fail("its __metadata__ is not an object");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) fail(fmt::format("its __metadata__ '{}' is not a text", key));
      if (metadata != nullptr) (*metadata)[key] = value.get<std::string>();
    }
  }
  require_tiling(tensors, data, file);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      file_(path),
      tensors_(parse_safetensors(file_.bytes(), path.string(), &metadata_)) {
  for (TensorView& tensor : tensors_) tensor.is_mapped = true;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorView::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  const TensorView* found = find(name);
  if (found == nullptr) {
    throw InputError(fmt::format("'{}': tensor '{}' is missing", path_.string(), name));
  }
  return *found;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    ATOLL_CHECK(!header.contains(tensor.name));
    uint64_t size = num_bytes(tensor.type);
    for (const int64_t length : tensor.shape) size *= static_cast<uint64_t>(length);
    ATOLL_CHECK(size == tensor.bytes.size(), tensor.name);
    header[tensor.name] = {{"dtype", name_of(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // So that the data is aligned.
  const uint64_t length = text.size();
  write_file_synced(path, [&](const Append& append) {
    append(std::as_bytes(std::span(&length, 1)));
    append(as_byte_span(text));
    for (const TensorView& tensor : tensors) read_in_pieces(tensor, append);
  });
}

std::optional<codec::GgmlType> parameter_type(DType type) {
  if (type == DType::kF32) return codec::GgmlType::kF32;
  if (type == DType::kF16) return codec::GgmlType::kF16;
  if (type == DType::kBF16) return codec::GgmlType::kBF16;
  return {};
}

codec::GgmlType parameter_type(const TensorView& tensor, const std::string& file) {
  if (const auto type = parameter_type(tensor.type)) return *type;
  throw InputError(
      fmt::format("'{}': tensor '{}': type {} cannot be a parameter; F32, BF16 and F16 can", file,
                  tensor.name, name_of(tensor.type)));
}

void copy_as_f32(const TensorView& tensor, std::span<float> target, const std::string& file) {
  ATOLL_CHECK(tensor.bytes.size() == target.size() * num_bytes(tensor.type), tensor.name);
  codec::dequantize(parameter_type(tensor, file), tensor.bytes, target);
}

Bytes bytes_as(DType type, std::span<const float> values) {
  ATOLL_CHECK(type == DType::kF32 || type == DType::kF16 || type == DType::kBF16);
  return codec::quantize(parameter_type(type).value(), values);
}

}  // namespace atl::weights
