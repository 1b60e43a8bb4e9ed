#include "atoll/study/likelihood.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "atoll/base/check.h"
#include "atoll/train/evaluate.h"

namespace atl::study {
namespace {

constexpr int64_t kBatchTokens = 4096;

/// What the model reads, and the requests whose continuations end behind it.
struct Row {
  std::vector<int64_t> ids;
  std::vector<size_t> requests;
};

/// The longest first. Requests that differ in their last token alone (answers like A, B, C) share a
/// row.
std::vector<Row> make_rows(std::span<const TokenRequest> requests) {
  std::map<std::vector<int64_t>, std::vector<size_t>> by_ids;
  for (size_t i = 0; i < requests.size(); ++i) {
    const TokenRequest& request = requests[i];
    ATOLL_CHECK(!request.context.empty() && !request.continuation.empty());
    std::vector<int64_t> ids = request.context;
    ids.insert(ids.end(), request.continuation.begin(), request.continuation.end() - 1);
    by_ids[std::move(ids)].push_back(i);
  }
  std::vector<Row> rows;
  for (auto& [ids, places] : by_ids) rows.push_back({ids, std::move(places)});
  std::ranges::stable_sort(rows,
                           [](const Row& a, const Row& b) { return a.ids.size() > b.ids.size(); });
  return rows;
}

/// Rows side by side; what is behind a shorter one's end is not looked at.
at::Tensor tokens_BT(std::span<const Row> rows, at::Device device) {
  const auto length = static_cast<int64_t>(rows.front().ids.size());
  const at::Tensor host =
      at::zeros({static_cast<int64_t>(rows.size()), length}, at::TensorOptions().dtype(at::kLong));
  int64_t* begin = host.mutable_data_ptr<int64_t>();
  for (const Row& row : rows) {
    std::ranges::copy(row.ids, begin);
    begin += length;
  }
  return host.to(device);
}

}  // namespace

std::vector<Likelihood> likelihoods(const model::Model& model,
                                    std::span<const TokenRequest> requests, int64_t batch_rows,
                                    const std::function<void(int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  const std::vector<Row> rows = make_rows(requests);
  std::vector<Likelihood> results(requests.size());
  int64_t done = 0;
  for (size_t begin = 0; begin < rows.size();) {
    const auto length = static_cast<int64_t>(rows[begin].ids.size());
    const int64_t wanted =
        batch_rows > 0 ? batch_rows : std::max<int64_t>(1, kBatchTokens / length);
    const size_t size = std::min(rows.size() - begin, static_cast<size_t>(wanted));
    const std::span<const Row> batch = std::span(rows).subspan(begin, size);
    const at::Tensor hidden_BTC = model.hidden_BTC(tokens_BT(batch, model.device()));
    for (size_t i = 0; i < size; ++i) {
      const Row& row = batch[i];
      for (const size_t place : row.requests) {
        const std::vector<int64_t>& targets = requests[place].continuation;
        const auto count = static_cast<int64_t>(targets.size());
        const auto first = static_cast<int64_t>(row.ids.size()) - count;
        Likelihood& result = results[place];
        result.is_greedy = true;
        for (const train::TokenScore& score : train::score_targets(
                 model, hidden_BTC[static_cast<int64_t>(i)].narrow(0, first, count), targets)) {
          result.log_probability += score.log_probability;
          result.is_greedy = result.is_greedy && score.rank == 1;
        }
      }
      done += std::ssize(row.requests);
    }
    begin += size;
    if (progress) progress(done);
  }
  return results;
}

}  // namespace atl::study
