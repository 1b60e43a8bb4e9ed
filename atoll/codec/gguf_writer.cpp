#include "atoll/codec/gguf_writer.h"

#include "atoll/base/check.h"

namespace atl::codec {
namespace {

constexpr size_t kAlignment = 32;

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& bytes, std::string_view text) {
  append(bytes, uint64_t{text.size()});
  bytes += text;
}

}  // namespace

GgufWriter& GgufWriter::begin(std::string_view key, Kind kind) {
  ++num_values_;
  return string(key).number(uint32_t{kind});
}

GgufWriter& GgufWriter::string(std::string_view value) {
  append_text(values_, value);
  return *this;
}

GgufWriter& GgufWriter::raw(const void* bytes, size_t count) {
  values_.append(static_cast<const char*>(bytes), count);
  return *this;
}

void GgufWriter::texts(std::string_view key, const std::vector<std::string>& all) {
  begin(key, kList).number(uint32_t{kText}).number(uint64_t{all.size()});
  for (const std::string& one : all) string(one);
}

void GgufWriter::bytes(std::string_view key, std::string_view all) {
  begin(key, kList)
      .number(uint32_t{kUint8})
      .number(uint64_t{all.size()})
      .raw(all.data(), all.size());
}

void GgufWriter::tensor(std::string_view name, const std::vector<int64_t>& shape, GgmlType type) {
  const GgmlBlock block = ggml_block(type);
  ATOLL_CHECK(!shape.empty() && static_cast<size_t>(shape.back()) % block.num_values == 0);
  size_t size = block.num_bytes;
  for (const int64_t length : shape) size *= static_cast<size_t>(length);
  announce(name, shape, static_cast<uint32_t>(type), size / block.num_values);
}

void GgufWriter::announce(std::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                          size_t num_bytes) {
  append_text(tensors_, name);
  append(tensors_, static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i-- > 0;) append(tensors_, static_cast<uint64_t>(shape[i]));
  append(tensors_, type);
  append(tensors_, data_bytes_);
  data_bytes_ += num_bytes + padding_behind(num_bytes).size();
  ++num_tensors_;
}

std::string GgufWriter::head() const {
  std::string head = "GGUF";
  append(head, uint32_t{3});
  append(head, num_tensors_);
  append(head, num_values_);
  head += values_ + tensors_;
  return head + padding_behind(head.size());
}

std::string GgufWriter::padding_behind(size_t num_bytes) {
  return std::string((kAlignment - num_bytes % kAlignment) % kAlignment, '\0');
}

}  // namespace atl::codec
