// A model's logits for bench/beside_llama_cpp.py, which compares whole distributions.
//   atoll-print-logits MODEL < IDS > LOGITS: ids as words; FP32 (T, V) in row order.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/model/model.h"

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw atl::UsageError("atoll-print-logits MODEL < IDS");
    const std::vector<int64_t> ids{std::istream_iterator<int64_t>(std::cin), {}};
    const at::NoGradGuard no_grad;
    const atl::model::Model model = atl::model::load_model(argv[1], at::kCPU);
    model.check_ids(ids);
    const at::Tensor tokens_1T =
        at::empty({1, std::ssize(ids)}, at::TensorOptions().dtype(at::kLong));
    std::ranges::copy(ids, tokens_1T.mutable_data_ptr<int64_t>());
    const at::Tensor logits_TV =
        model.logits(model.hidden_BTC(tokens_1T)[0]).to(at::kFloat).contiguous();
    const auto count = static_cast<size_t>(logits_TV.numel());
    if (std::fwrite(logits_TV.const_data_ptr<float>(), sizeof(float), count, stdout) != count) {
      throw atl::InputError("standard output takes no more");
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
