#include "atoll/kv_model/measure.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/thread_time.h"
#include "atoll/kv_model/planes.h"
#include "atoll/train/evaluate.h"

namespace atl::kv_model {
namespace {

/// Nats per token of what follows on a cache that has a window's prefix.
double loss_behind(const model::Model& model, std::span<const int64_t> ids,
                   const WindowShape& shape, model::KvCache& cache) {
  const auto read =
      ids.subspan(static_cast<size_t>(shape.prefix), static_cast<size_t>(shape.scored));
  const at::Tensor hidden_1TC = model.hidden_BTC(at::tensor(read, at::kLong).unsqueeze(0), cache);
  std::vector<model::RowTarget> targets;
  for (int64_t row = 0; row < shape.scored; ++row) {
    targets.push_back({row, ids[static_cast<size_t>(shape.prefix + row + 1)]});
  }
  double sum = 0;
  for (const auto& score : train::score_targets(model, hidden_1TC[0], targets)) {
    sum += score.log_probability;
  }
  return -sum / static_cast<double>(shape.scored);
}

struct Totals {
  double bytes = 0;
  double encode_s = 0;
  double decode_s = 0;
};

Rate rate_of(const Scheme& scheme, const Totals& totals, double elements,
             std::vector<double> differences) {
  const auto count = static_cast<double>(differences.size());
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  double squares = 0;
  for (const double difference : differences) squares += std::pow(difference - mean, 2);
  const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : NAN;
  return {.name = scheme.name(),
          .bits = 8 * totals.bytes / elements,
          .growth = std::expm1(mean),
          .half_interval = 1.96 * deviation / std::sqrt(count) * std::exp(mean),
          .encoded_per_s = elements / totals.encode_s,
          .decoded_per_s = elements / totals.decode_s,
          .loss_differences = std::move(differences)};
}

}  // namespace

Rates measure_rates(const model::Model& model, const std::string& digest,
                    std::span<const std::vector<int64_t>> windows, const WindowShape& shape,
                    std::span<const std::unique_ptr<Scheme>> schemes,
                    const std::function<void()>& done) {
  const at::NoGradGuard no_grad;
  const weights::ModelConfig& config = model.config();
  const model::LayerRange layers{0, config.num_layers};
  const kv::Turns turns = turns_of(config, 0, shape.prefix);
  kv::BlobHead head;
  head.model = digest;
  head.end_layer = static_cast<int32_t>(config.num_layers);
  head.num_channels = static_cast<uint32_t>(config.num_kv_heads * config.head_size());
  head.num_tokens = static_cast<uint32_t>(shape.prefix);
  std::vector<Totals> totals(schemes.size());
  std::vector<std::vector<double>> differences(schemes.size());
  double loss = 0;
  for (const std::vector<int64_t>& ids : windows) {
    ATOLL_CHECK(std::ssize(ids) == shape.length());
    model::KvCache cache = model.kv_cache();
    const auto prefix = std::span(ids).first(static_cast<size_t>(shape.prefix));
    model.hidden_BTC(at::tensor(prefix, at::kLong).unsqueeze(0), cache);
    const std::vector<uint16_t> kv_PCT = planes_of(cache, layers, shape.prefix);
    const double plain_loss = loss_behind(model, ids, shape, cache);
    loss += plain_loss;
    for (size_t i = 0; i < schemes.size(); ++i) {
      const double start = thread_cpu_seconds();
      const Bytes bytes = schemes[i]->encode(head, kv_PCT, turns);
      const double middle = thread_cpu_seconds();
      const std::vector<uint16_t> back_PCT = schemes[i]->decode(bytes, head, turns);
      totals[i].decode_s += thread_cpu_seconds() - middle;
      totals[i].encode_s += middle - start;
      totals[i].bytes += static_cast<double>(bytes.size());
      model::KvCache other = model.kv_cache();
      append_planes(back_PCT, config, layers, other);
      differences[i].push_back(loss_behind(model, ids, shape, other) - plain_loss);
    }
    if (done) done();
  }
  const auto count = static_cast<double>(windows.size());
  Rates found{.perplexity = std::exp(loss / count), .rates = {}};
  const double elements = count * static_cast<double>(head.num_values());
  for (size_t i = 0; i < schemes.size(); ++i) {
    found.rates.push_back(rate_of(*schemes[i], totals[i], elements, std::move(differences[i])));
  }
  return found;
}

}  // namespace atl::kv_model
