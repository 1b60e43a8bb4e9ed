#include "atoll/sync/strategy.h"

#include <array>

#include "atoll/sync/device_codec.h"
#include "atoll/sync/topology.h"

namespace atl::sync {

Strategy::Strategy(const SyncOptions& options, Replica replica, collective::Averager& averager,
                   const Clock& clock)
    : replica_(std::move(replica)),
      averager_(averager),
      clock_(clock),
      method_(method_of(options)),
      codec_(codec::make_codec(codec_name(options))),
      topology_(topology_of(options, *codec_, averager.num_members())),
      measures_layers_(options.layer_metrics) {}

Result<void> Strategy::reduce_gradients(int64_t step) {
  return timed(step, &Strategy::do_reduce_gradients);
}

Result<void> Strategy::after_step(int64_t step) { return timed(step, &Strategy::do_after_step); }

/// What the training thread does for the exchange, it does not do for training.
Result<void> Strategy::timed(int64_t step, Result<void> (Strategy::*act)(int64_t)) {
  step_ = step;
  const size_t num_records = records_.size();
  const Time begin = clock_.now();
  auto done = (this->*act)(step);
  const double stall = seconds(clock_.now() - begin);
  stats_.stall_seconds += stall;
  unbooked_stall_ += stall;
  if (const size_t fresh = records_.size() - num_records; fresh > 0) {
    const double share = std::exchange(unbooked_stall_, 0.0) / static_cast<double>(fresh);
    for (size_t i = num_records; i < records_.size(); ++i) records_[i].stall_seconds = share;
  }
  return done;
}

bool Strategy::is_on_device(const at::Tensor& values) const {
  return replica_.as_if_on_device || !values.is_cpu();
}

void Strategy::bring(const at::Tensor& host_P, at::Tensor& copy_P) const {
  if (!is_on_device(replica_.values_P)) {
    copy_P = host_P;
  } else if (copy_P.defined()) {
    copy_P.copy_(host_P);
  } else {
    copy_P = host_P.to(replica_.values_P.options(), /*non_blocking=*/false, /*copy=*/true);
  }
}

bool Strategy::can_send(const at::Tensor& values) const {
  return is_on_device(values) ? accepts(*codec_, values) : codec_->accepts(span_of(values));
}

void Strategy::begin(const at::Tensor& values, collective::Contribution contribution,
                     std::span<const Range> ranges) {
  if (contribution.codec == nullptr) contribution.codec = codec_.get();
  if (is_on_device(values)) {
    contribution.device_values = device_values(values, *contribution.codec);
  } else {
    contribution.values = span_of(values);
  }
  contribution.topology = topology_;
  OpenRound& open = open_rounds_[contribution.round];
  open.fragment = contribution.fragment;
  open.abstained = contribution.weight == 0;
  if (measures_layers_) {
    const auto [found, is_new] = slices_.try_emplace(contribution.fragment);
    if (is_new) {
      const std::array whole = {Range{0, replica_.values_P.numel()}};
      found->second = layer_slices(replica_.specs, ranges.empty() ? whole : ranges);
    }
    contribution.needs_own = true;
    contribution.prepare = [&open, &slices = found->second,
                            prepare = std::move(contribution.prepare)](std::span<const float> mean,
                                                                       std::span<const float> own) {
      open.sums = measure_layers(slices, own, mean);
      return prepare(mean, own);
    };
  }
  averager_.begin(std::move(contribution));
}

int64_t Strategy::weight(int64_t round, const at::Tensor& values, int64_t tokens) {
  const bool abstains = std::exchange(abstains_, false);
  const bool did = std::erase(abstains_again_, round) > 0;
  return abstains || did || !can_send(values) ? 0 : tokens;
}

std::vector<int64_t> Strategy::abstained_rounds() const {
  std::vector<int64_t> rounds;
  for (const auto& [round, open] : open_rounds_) {
    if (open.abstained) rounds.push_back(round);
  }
  return rounds;
}

Result<void> Strategy::drain() {
  while (!open_rounds_.empty()) {
    const int64_t round = open_rounds_.begin()->first;
    if (auto commit = averager_.wait(round); !commit) return tl::unexpected(commit.error());
    open_rounds_.erase(round);
  }
  return {};
}

Result<void> Strategy::wait(int64_t round) {
  auto commit = averager_.wait(round);
  if (!commit) return tl::unexpected(commit.error());
  stats_.rounds += 1;
  stats_.digest = hex(commit->digest);
  stats_.stop_requested = stats_.stop_requested || commit->stop;
  const OpenRound open = std::move(open_rounds_.extract(round).mapped());
  RoundRecord record{.step = step_, .fragment = open.fragment, .abstained = open.abstained};
  if (measures_layers_) {
    record.layers = layer_records(slices_[open.fragment], open.sums, commit->own_share);
  }
  record.commit = *std::move(commit);
  records_.push_back(std::move(record));
  return {};
}

}  // namespace atl::sync
