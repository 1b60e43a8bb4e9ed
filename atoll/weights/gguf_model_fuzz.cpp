// Models of strangers in GGUF files, nearly whole: each is read or refused, by an InputError.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/testing/sample_gguf.h"
#include "atoll/weights/gguf_model.h"
#include "atoll/weights/hf_config.h"

namespace atl::weights {
namespace {

/// A Llama of one layer with heads of four elements.
std::string model(bool is_stretched) {
  codec::SampleGguf file;
  file.text("general.architecture", "llama");
  for (const auto& [key, value] : {std::pair("block_count", 1U),
                                   {"context_length", 16U},
                                   {"embedding_length", 8U},
                                   {"feed_forward_length", 4U},
                                   {"attention.head_count", 2U},
                                   {"attention.head_count_kv", 1U},
                                   {"rope.dimension_count", 4U}}) {
    file.whole(std::string("llama.") + key, value);
  }
  file.real("llama.rope.freq_base", 10000);
  file.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  file.whole("tokenizer.ggml.eos_token_id", 1);
  const auto add = [&](const char* name, std::vector<uint64_t> lengths) {
    uint64_t size = 4;
    for (const uint64_t length : lengths) size *= length;
    file.tensor({name, std::move(lengths), 0, std::string(size, '\1')});
  };
  add("token_embd.weight", {8, 3});
  add("output_norm.weight", {8});
  add("blk.0.attn_norm.weight", {8});
  add("blk.0.ffn_norm.weight", {8});
  add("blk.0.attn_q.weight", {8, 8});
  add("blk.0.attn_k.weight", {8, 4});
  add("blk.0.attn_v.weight", {8, 4});
  add("blk.0.attn_output.weight", {8, 8});
  add("blk.0.ffn_gate.weight", {8, 4});
  add("blk.0.ffn_up.weight", {8, 4});
  add("blk.0.ffn_down.weight", {4, 8});
  if (is_stretched) add("rope_freqs.weight", {2});
  return file.file();
}

void read(const std::string& bytes) {
  try {
    const codec::GgufFile file(as_byte_span(bytes), "fuzz");
    const ModelConfig config = from_hf_config(hf_config_of_gguf(file), "fuzz").config;
    constexpr int64_t kMost = 1 << 20;
    const auto is_small = [](int64_t size) { return size <= 1000; };
    const bool is_read = is_small(config.num_layers) && is_small(config.hidden_size) &&
                         is_small(config.intermediate_size) && is_small(config.vocab_size) &&
                         is_small(config.num_heads) && is_small(config.head_size());
    if (!is_read || num_parameters(config) > kMost) return;
    std::vector<float> values(static_cast<size_t>(num_parameters(config)));
    const std::vector<StoredTensor> tensors = tensors_of_gguf(file, config);
    const std::vector<ParameterSpec> specs = parameter_specs(config);
    for (size_t i = 0; i < specs.size(); ++i) {
      tensors[i].read_all(specs[i].inputs_first,
                          std::span(values).subspan(static_cast<size_t>(specs[i].offset),
                                                    static_cast<size_t>(specs[i].size)));
    }
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::weights

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace atl::weights;
  static const std::array<std::string, 2> kModels = {model(false), model(true)};
  if (size == 0) return 0;
  std::string file = kModels[data[0] % 2];
  for (size_t i = 1; i + 2 < size && i < 30; i += 3) {
    file[(size_t{data[i]} << 8 | data[i + 1]) % file.size()] = static_cast<char>(data[i + 2]);
  }
  read(file);
  return 0;
}
