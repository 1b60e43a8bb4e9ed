#include "atoll/serve/head.h"

#include <exception>

#include "atoll/serve/row_batches.h"
#include "atoll/serve/sequence.h"

namespace atl::serve {

at::Tensor embed_TC(const model::Model& model, std::span<const int64_t> tokens,
                    model::KvCache& before) {
  const model::CachedRow row{&before, std::ssize(tokens)};
  const at::Tensor tokens_1T = tensor_1T(tokens).to(model.device());
  return model.decoder()
      .embed(tokens_1T, std::span(&row, 1))[0]
      .to(at::TensorOptions(at::kCPU).dtype(at::kFloat))
      .contiguous();
}

std::vector<Followed> follow_orders(const model::Model& model, const at::Tensor& x_TC,
                                    std::span<const decoding::Order> orders) {
  std::vector<HiddenRows> rows;
  std::vector<size_t> places;
  for (size_t i = 0; i < orders.size(); ++i) {
    if (orders[i].wanted == decoding::Wanted::kNothing) continue;
    const at::Tensor x_11C = x_TC.narrow(0, static_cast<int64_t>(i), 1).unsqueeze(0);
    rows.push_back({.position = 0,
                    .hidden_WC = model.decoder().finish(x_11C.to(model.device()))[0],
                    .as_logits = orders[i].wanted != decoding::Wanted::kHidden});
    places.push_back(i);
  }
  std::vector<Followed> followed(orders.size());
  give_rows(model, rows, [&](size_t index, int64_t /*position*/, const at::Tensor& row_1X) {
    const size_t place = places[index];
    try {
      followed[place].outcome = decoding::follow(
          orders[place], {row_1X.mutable_data_ptr<float>(), static_cast<size_t>(row_1X.numel())});
    } catch (const std::exception& error) {
      followed[place].fault = error.what();
    }
    return false;
  });
  return followed;
}

}  // namespace atl::serve
