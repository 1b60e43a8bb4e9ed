#include "atoll/serve/likelihood.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/train/evaluate.h"

namespace atl::serve {
namespace {

constexpr int64_t kBatchTokens = 4096;
// A context is read once when that saves this factor of tokens: what follows it is then read text
// by text, which is slower per token than a batch.
constexpr int64_t kSharedGain = 2;

/// What the model reads, and the requests whose continuations end behind it.
struct Row {
  std::vector<int64_t> ids;
  std::vector<size_t> requests;
};

/// The longest first. Requests that differ in their last token alone (answers like A, B, C) share a
/// row.
std::vector<Row> make_rows(std::span<const tasks::TokenRequest> requests,
                           std::span<const size_t> places) {
  std::map<std::vector<int64_t>, std::vector<size_t>> by_ids;
  for (const size_t place : places) {
    const tasks::TokenRequest& request = requests[place];
    std::vector<int64_t> ids = request.context;
    ids.insert(ids.end(), request.continuation.begin(), request.continuation.end() - 1);
    by_ids[std::move(ids)].push_back(place);
  }
  std::vector<Row> rows;
  for (auto& [ids, same] : by_ids) rows.push_back({ids, std::move(same)});
  std::ranges::stable_sort(rows,
                           [](const Row& a, const Row& b) { return a.ids.size() > b.ids.size(); });
  return rows;
}

int64_t num_tokens(std::span<const Row> rows) {
  int64_t count = 0;
  for (const Row& row : rows) count += std::ssize(row.ids);
  return count;
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

class Reader {
 public:
  using Progress = std::function<void(int64_t)>;

  Reader(const model::Model& model, std::span<const tasks::TokenRequest> requests,
         const Progress& progress)
      : model_(model), requests_(requests), progress_(progress), results_(requests.size()) {}

  void read_rows(std::span<const Row> rows, int64_t batch_rows) {
    for (size_t begin = 0; begin < rows.size();) {
      const auto length = static_cast<int64_t>(rows[begin].ids.size());
      const int64_t wanted =
          batch_rows > 0 ? batch_rows : std::max<int64_t>(1, kBatchTokens / length);
      const size_t size = std::min(rows.size() - begin, static_cast<size_t>(wanted));
      const std::span<const Row> batch = rows.subspan(begin, size);
      const at::Tensor hidden_BTC = model_.hidden_BTC(tokens_BT(batch, model_.device()));
      for (size_t i = 0; i < size; ++i) {
        const auto end = static_cast<int64_t>(batch[i].ids.size());
        for (const size_t place : batch[i].requests) {
          const auto count = static_cast<int64_t>(requests_[place].continuation.size());
          score(place, hidden_BTC[static_cast<int64_t>(i)].narrow(0, end - count, count));
        }
      }
      begin += size;
    }
  }

  /// Reads a context once, and each continuation behind it.
  void read_shared(std::span<const size_t> places) {
    const std::vector<int64_t>& context = requests_[places.front()].context;
    const auto length = static_cast<int64_t>(context.size());
    size_t longest = 1;
    for (const size_t place : places) {
      longest = std::max(longest, requests_[place].continuation.size());
    }
    const int64_t capacity = length + static_cast<int64_t>(longest) - 1;
    model::KvCache cache(model_.config(), 1, capacity, model_.device());
    const at::Tensor last_TC = hidden_TC(context, cache).narrow(0, length - 1, 1);
    for (const size_t place : places) {
      std::vector<int64_t> read = requests_[place].continuation;
      read.pop_back();
      if (read.empty()) {
        score(place, last_TC);
        continue;
      }
      score(place, at::cat({last_TC, hidden_TC(read, cache)}));
      cache.truncate(length);
    }
  }

  std::vector<tasks::Likelihood> take() { return std::move(results_); }

 private:
  at::Tensor hidden_TC(const std::vector<int64_t>& ids, model::KvCache& cache) const {
    const Row row{ids, {}};
    return model_.hidden_BTC(tokens_BT({&row, 1}, model_.device()), cache)[0];
  }

  void score(size_t place, const at::Tensor& hidden_TC) {
    tasks::Likelihood& result = results_[place];
    result.is_greedy = true;
    const std::vector<int64_t>& targets = requests_[place].continuation;
    for (const train::TokenScore& token : train::score_targets(model_, hidden_TC, targets)) {
      if (std::isnan(token.log_probability)) {
        throw InputError(
            "the model's probabilities are not numbers (nan): its weights are damaged or its "
            "training diverged");
      }
      result.log_probability += token.log_probability;
      result.is_greedy = result.is_greedy && token.rank == 1;
    }
    if (progress_) progress_(++done_);
  }

  const model::Model& model_;
  std::span<const tasks::TokenRequest> requests_;
  const Progress& progress_;
  std::vector<tasks::Likelihood> results_;
  int64_t done_ = 0;
};

}  // namespace

std::vector<tasks::Likelihood> likelihoods(const model::Model& model,
                                           std::span<const tasks::TokenRequest> requests,
                                           int64_t batch_rows,
                                           const std::function<void(int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  std::map<std::vector<int64_t>, std::vector<size_t>> by_context;
  for (size_t i = 0; i < requests.size(); ++i) {
    ATOLL_CHECK(!requests[i].context.empty() && !requests[i].continuation.empty());
    by_context[requests[i].context].push_back(i);
  }
  Reader reader(model, requests, progress);
  std::vector<size_t> others;
  for (const auto& [context, places] : by_context) {
    const std::vector<Row> rows = make_rows(requests, places);
    const int64_t once =
        std::ssize(context) + num_tokens(rows) - std::ssize(context) * std::ssize(rows);
    if (batch_rows == 0 && num_tokens(rows) >= kSharedGain * once) {
      reader.read_shared(places);
    } else {
      others.insert(others.end(), places.begin(), places.end());
    }
  }
  reader.read_rows(make_rows(requests, others), batch_rows);
  return reader.take();
}

}  // namespace atl::serve
