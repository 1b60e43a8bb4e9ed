#include "atoll/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/model/kernels.h"
#include "atoll/train/loss.h"

namespace atl::train {
namespace {

/// Host ids as a (1, T) tensor on the model's device.
at::Tensor tokens_BT(std::span<const int64_t> ids, at::Device device) {
  const at::Tensor host =
      at::empty({1, static_cast<int64_t>(ids.size())}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(ids, host.mutable_data_ptr<int64_t>());
  return host.to(device);
}

}  // namespace

double mean_loss(const model::Model& model, const data::Batches& rows, int64_t sequence_length,
                 int64_t num_rows, int64_t batch_rows) {
  const auto cross_entropy = [&](const Batch& batch) {
    return evaluate_loss(model, batch.inputs_BT.to(model.device()),
                         batch.targets_BT.to(model.device()), {})
        .cross_entropy.item<double>();
  };
  return mean_loss(cross_entropy, rows, sequence_length, num_rows, batch_rows);
}

double mean_loss(const std::function<double(const Batch&)>& cross_entropy,
                 const data::Batches& rows, int64_t sequence_length, int64_t num_rows,
                 int64_t batch_rows) {
  ATOLL_CHECK(batch_rows > 0 && sequence_length > 1);
  const std::vector<int64_t> read = rows.spread(num_rows);
  const int64_t count = std::ssize(read);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += batch_rows) {
    const int64_t size = std::min(batch_rows, count - begin);
    const std::span<const int64_t> numbers =
        std::span(read).subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    const auto options = at::TensorOptions().dtype(at::kLong);
    const at::Tensor inputs_BT = at::empty({size, sequence_length}, options);
    const at::Tensor targets_BT = at::empty({size, sequence_length}, options);
    const auto elements = static_cast<size_t>(inputs_BT.numel());
    rows.fill(numbers, {inputs_BT.mutable_data_ptr<int64_t>(), elements},
              {targets_BT.mutable_data_ptr<int64_t>(), elements});
    // Every row trains the same number of predictions, so rows weigh alike.
    total += cross_entropy({inputs_BT, targets_BT}) * static_cast<double>(size);
  }
  return total / static_cast<double>(count);
}

std::vector<TokenScore> score_targets(const model::Model& model, const at::Tensor& hidden_TC,
                                      std::span<const model::RowTarget> targets) {
  constexpr int64_t kSlice = 128;  // Rows whose logits exist at a time.
  std::vector<int64_t> ids;
  for (const model::RowTarget& target : targets) ids.push_back(target.id);
  model.check_ids(ids);
  std::vector<size_t> order(targets.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t place) { return targets[place].row; });
  ATOLL_CHECK(order.empty() || targets[order.front()].row >= 0);
  std::vector<TokenScore> scores(targets.size());
  auto next = order.begin();
  for (int64_t begin = 0; begin < hidden_TC.size(0) && next != order.end(); begin += kSlice) {
    const int64_t size = std::min(kSlice, hidden_TC.size(0) - begin);
    const auto slice = std::span(next, std::find_if(next, order.end(), [&](size_t place) {
                                   return targets[place].row >= begin + size;
                                 }));
    next += std::ssize(slice);
    std::vector<model::RowTarget> wanted;
    for (const size_t place : slice) {
      wanted.push_back({targets[place].row - begin, targets[place].id});
    }
    // A device's are few enough to be scored here.
    const at::Tensor logits_TV =
        model.logits(hidden_TC.narrow(0, begin, size)).to(at::kCPU, at::kFloat).contiguous();
    std::vector<double> log_probabilities(wanted.size());
    std::vector<int64_t> num_larger(wanted.size());
    model::score_rows({size, logits_TV.size(1)}, logits_TV.const_data_ptr<float>(), wanted,
                      log_probabilities.data(), num_larger.data());
    for (size_t i = 0; i < slice.size(); ++i) {
      scores[slice[i]] = {log_probabilities[i], num_larger[i] + 1};
    }
  }
  ATOLL_CHECK(next == order.end());
  return scores;
}

std::vector<std::optional<TokenScore>> score_tokens(const model::Model& model,
                                                    std::span<const int64_t> ids, int64_t window,
                                                    int64_t stride,
                                                    const std::function<void(int64_t)>& progress) {
  ATOLL_CHECK(stride > 0 && stride < window && window <= model.config().context());
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(ids.size());
  std::vector<std::optional<TokenScore>> scores(ids.size());
  for (int64_t begin = 0, scored = 1; scored < count; begin += stride) {
    const int64_t end = std::min(count, begin + window);
    // The last token of a window is only a target.
    const at::Tensor hidden_BTC =
        model.hidden_BTC(tokens_BT(ids.subspan(begin, end - begin), model.device()));
    std::vector<model::RowTarget> targets;
    for (int64_t place = scored; place < end; ++place) {
      targets.push_back({place - scored, ids[static_cast<size_t>(place)]});
    }
    const auto found =
        score_targets(model, hidden_BTC[0].narrow(0, scored - 1 - begin, end - scored), targets);
    std::ranges::copy(found, scores.begin() + scored);
    scored = end;
    if (progress) progress(scored);
  }
  return scores;
}

}  // namespace atl::train
