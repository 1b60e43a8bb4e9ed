#pragma once
// Small GGUF files for tests and fuzz targets.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace atl::codec {

/// Appends what it is given as the format has it.
class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> lengths;  // The first one's values lie together.
    uint32_t type = 0;
    std::string bytes;
  };

  void text(const std::string& key, std::string_view value) { begin(key, 8).string(value); }
  void whole(const std::string& key, uint32_t value) { begin(key, 4).number(value); }
  void real(const std::string& key, float value) { begin(key, 6).number(value); }
  void texts(const std::string& key, const std::vector<std::string>& all) {
    begin(key, 9).number(uint32_t{8}).number(uint64_t{all.size()});
    for (const std::string& one : all) string(one);
  }
  void wholes(const std::string& key, const std::vector<int32_t>& all) {
    begin(key, 9).number(uint32_t{5}).number(uint64_t{all.size()});
    for (const int32_t one : all) number(one);
  }
  void reals(const std::string& key, const std::vector<float>& all) {
    begin(key, 9).number(uint32_t{6}).number(uint64_t{all.size()});
    for (const float one : all) number(one);
  }
  void tensor(Tensor one) { tensors_.push_back(std::move(one)); }

  std::string file() const {
    GgufWriter head;
    head.bytes_ = "GGUF";
    head.number(uint32_t{3}).number(uint64_t{tensors_.size()}).number(num_values_);
    head.bytes_ += bytes_;
    std::string data;
    for (const Tensor& one : tensors_) {
      head.string(one.name).number(static_cast<uint32_t>(one.lengths.size()));
      for (const uint64_t length : one.lengths) head.number(length);
      data.resize((data.size() + 31) / 32 * 32);
      head.number(one.type).number(uint64_t{data.size()});
      data += one.bytes;
    }
    head.bytes_.resize((head.bytes_.size() + 31) / 32 * 32);
    return head.bytes_ + data;
  }

 private:
  GgufWriter& begin(const std::string& key, uint32_t kind) {
    ++num_values_;
    return string(key).number(kind);
  }
  GgufWriter& string(std::string_view value) {
    number(uint64_t{value.size()});
    bytes_ += value;
    return *this;
  }
  template <typename T>
  GgufWriter& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }

  std::string bytes_;
  uint64_t num_values_ = 0;
  std::vector<Tensor> tensors_;
};

/// A file with a value of each kind and two tensors.
inline GgufWriter sample_gguf() {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.whole("llama.block_count", 2);
  writer.real("llama.rope.freq_base", 10000);
  writer.texts("tokenizer.ggml.tokens", {"a", "b"});
  writer.wholes("tokenizer.ggml.token_type", {1, 3});
  writer.tensor({"token_embd.weight", {32, 2}, 8, std::string(68, '\1')});
  writer.tensor({"output_norm.weight", {3}, 0, std::string(12, '\0')});
  return writer;
}

}  // namespace atl::codec
