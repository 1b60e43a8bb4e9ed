#pragma once
// Small GGUF files for tests and fuzz targets.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/codec/gguf_writer.h"

namespace atl::codec {

/// A whole file. Its tensors need not be what they say.
class SampleGguf : public GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> lengths;  // The first one's values lie together.
    uint32_t type = 0;
    std::string bytes;
  };

  void tensor(const Tensor& one) {
    announce(one.name, {one.lengths.rbegin(), one.lengths.rend()}, one.type, one.bytes.size());
    data_ += padding_behind(data_.size()) + one.bytes;
  }
  std::string file() const { return head() + data_; }

 private:
  std::string data_;
};

/// A file with a value of each kind and two tensors.
inline SampleGguf sample_gguf() {
  SampleGguf file;
  file.text("general.architecture", "llama");
  file.whole("llama.block_count", 2);
  file.real("llama.rope.freq_base", 10000);
  file.flag("tokenizer.ggml.add_bos_token", true);
  file.texts("tokenizer.ggml.tokens", {"a", "b"});
  file.wholes("tokenizer.ggml.token_type", {1, 3});
  file.reals("tokenizer.ggml.scores", {-1, -2.5});
  file.bytes("tokenizer.ggml.precompiled_charsmap", "\xff\x01");
  file.tensor({"token_embd.weight", {32, 2}, 8, std::string(68, '\1')});
  file.tensor({"output_norm.weight", {3}, 0, std::string(12, '\0')});
  return file;
}

}  // namespace atl::codec
