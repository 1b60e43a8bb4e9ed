#include "atoll/sync/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include "atoll/base/hash.h"
#include "atoll/method/topology.h"
#include "atoll/model/spilled_tensor.h"
#include "atoll/sync/device_codec.h"
#include "atoll/sync/host.h"

namespace atl::sync {

Strategy::Strategy(const method::SyncOptions& options, Replica replica,
                   collective::Averager& averager, const Clock& clock)
    : replica_(std::move(replica)),
      averager_(averager),
      clock_(clock),
      method_(method::method_of(options)),
      codec_(codec::make_codec(method::codec_name(options))),
      topology_(method::topology_of(options, *codec_, averager.num_members())),
      keeps_outer_near_(options.keeps_outer_near()),
      measures_layers_(options.layer_metrics),
      rounds_({method::num_fragments(options), method_.takes_newcomers}, replica_.pace, options,
              averager) {}

Result<void> Strategy::reduce_gradients(int64_t step) {
  return timed(step, &Strategy::do_reduce_gradients);
}

Result<void> Strategy::after_step(int64_t step) {
  rounds_.trained(step);
  return timed(step, &Strategy::perform_due);
}

Result<void> Strategy::perform_due(int64_t /*step*/) {
  while (true) {
    const auto task = rounds_.next();
    if (!task) return tl::unexpected(task.error());
    if (!*task) return {};
    if (auto done = perform(**task); !done) return done;
  }
}

Result<void> Strategy::perform(const rounds::Task& task) {
  return std::visit([this](const auto& kind) { return perform(kind); }, task);
}

Result<void> Strategy::perform(const rounds::Begin& begin) {
  launch(begin.own);
  return {};
}

Result<void> Strategy::perform(const rounds::Take& own) {
  const auto taken = wait(own.round);
  if (!taken) return tl::unexpected(taken.error());
  note_change();
  take(taken->own, taken->fate);
  return {};
}

/// What the training thread does for the exchange, it does not do for training.
Result<void> Strategy::timed(int64_t step, Result<void> (Strategy::*act)(int64_t)) {
  step_ = step;
  const size_t num_records = records_.size();
  const Time begin = clock_.now();
  auto done = (this->*act)(step);
  rest();
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

at::Device Strategy::outer_device() const {
  return keeps_outer_near_ ? replica_.values_P.device() : at::kCPU;
}

at::Tensor Strategy::outer_zeros(int64_t size, at::Device device) const {
  if (device.is_cpu() && !replica_.outer_folder.empty()) {
    return model::spilled_tensor(replica_.outer_folder, size);
  }
  return at::zeros({size}, at::TensorOptions().dtype(at::kFloat).device(device));
}

at::Tensor Strategy::lasting(int64_t size, at::Device device) {
  at::Tensor zeros = outer_zeros(size, device);
  if (model::is_spilled(zeros)) spilled_.push_back(zeros);
  return zeros;
}

void Strategy::rest() const {
  for (const at::Tensor& tensor : spilled_) model::let_rest(tensor);
}

void Strategy::bring(const at::Tensor& outer_P, at::Tensor& copy_P) const {
  if (keeps_outer_near_ || !is_on_device(replica_.values_P)) {
    copy_P = outer_P;
  } else if (copy_P.defined()) {
    copy_P.copy_(outer_P);
  } else {
    copy_P = outer_P.to(replica_.values_P.options(), /*non_blocking=*/false, /*copy=*/true);
  }
}

bool Strategy::can_send(const at::Tensor& values) const {
  return is_on_device(values) ? accepts(*codec_, values) : codec_->accepts(span_of(values));
}

void Strategy::begin(const OwnRound& own, const at::Tensor& values,
                     collective::Contribution contribution, std::span<const method::Range> ranges) {
  contribution.round = own.round;
  contribution.fragment = own.fragment;
  contribution.step = own.step;
  if (contribution.codec == nullptr) contribution.codec = codec_.get();
  if (is_on_device(values)) {
    contribution.device_values = device_values(values, *contribution.codec);
  } else {
    contribution.values = span_of(values);
  }
  contribution.topology = topology_;
  if (replica_.num_trained != nullptr) contribution.num_trained = *replica_.num_trained;
  OwnRound begun = own;
  begun.has_abstained = contribution.weight == 0;
  rounds_.begun(begun);
  Sent& sent = sent_[own.round];
  if (measures_layers_) {
    const auto [found, is_new] = slices_.try_emplace(own.fragment);
    if (is_new) {
      const std::array whole = {method::Range{0, replica_.values_P.numel()}};
      found->second = method::layer_slices(replica_.specs, ranges.empty() ? whole : ranges);
    }
    contribution.needs_own = true;
    contribution.prepare = [&sent, &slices = found->second,
                            prepare = std::move(contribution.prepare)](
                               std::span<const float> mean, std::span<const float> part) {
      sent.sums = method::measure_layers(slices, part, mean);
      return prepare(mean, part);
    };
  }
  contribution.prepare = [this, &sent, prepare = std::move(contribution.prepare)](
                             std::span<const float> mean, std::span<const float> part) {
    const Time begin = clock_.now();
    const Digest digest = prepare(mean, part);
    sent.prepare_seconds = seconds(clock_.now() - begin);
    return digest;
  };
  sent.contribution = contribution;
  averager_.begin(std::move(contribution));
}

int64_t Strategy::weight(const OwnRound& own, const at::Tensor& values, int64_t tokens) {
  return rounds_.counts(own.round) && can_send(values) ? tokens : 0;
}

Result<void> Strategy::drain() {
  while (!sent_.empty()) {
    const int64_t round = sent_.begin()->first;
    if (auto commit = commit_of(round); !commit) return tl::unexpected(commit.error());
    rounds_.drained(round);
    sent_.erase(round);
  }
  return {};
}

void Strategy::note(const collective::Commit& commit) {
  stats_.rounds += 1;
  stats_.digest = hex(commit.digest);
}

Result<collective::Commit> Strategy::commit_of(int64_t round) {
  const Time begin = clock_.now();
  auto commit = averager_.wait(round);
  stats_.blocked_seconds += seconds(clock_.now() - begin);
  return commit;
}

Result<rounds::Taken> Strategy::wait(int64_t round) {
  auto commit = commit_of(round);
  if (!commit) return tl::unexpected(commit.error());
  if (commit->missed) {
    if (auto taken = take_result(sent_.at(round), *commit); !taken) {
      return tl::unexpected(taken.error());
    }
  }
  const Sent sent = std::move(sent_.extract(round).mapped());
  note(*commit);
  if (!commit->included && !method_.takes_newcomers) return without_this_island(round);
  const rounds::Taken taken = rounds_.taken(*commit);
  RoundRecord record{.step = step_,
                     .abstained = taken.fate != Fate::kCounted && taken.fate != Fate::kOvertaken,
                     .before = taken.before,
                     .num_values = sent.contribution.num_values(),
                     .codec = std::string(sent.contribution.codec->name()),
                     .prepare_seconds = sent.prepare_seconds};
  if (measures_layers_) {
    record.layers = method::layer_records(slices_[commit->fragment], sent.sums, commit->own_share);
  }
  record.commit = *std::move(commit);
  records_.push_back(std::move(record));
  return taken;
}

tl::unexpected<Failure> Strategy::without_this_island(int64_t round) const {
  return failure(fmt::format(
      "round {} was committed without this island, which sync.method = '{}' cannot make "
      "up for",
      round, method_.name));
}

tl::unexpected<Failure> Strategy::another_state(int64_t round) {
  return failure(fmt::format(
      "round {}: the result that the others sent makes another state than theirs", round));
}

/// The exchange went on without this replica: it makes the mean from what the others sent.
Result<void> Strategy::take_result(Sent& sent, const collective::Commit& commit) {
  const collective::CommittedRound& record = *commit.record;
  std::vector<float> mean(record.count);
  if (auto made = decode_mean(record, *sent.contribution.codec, mean); !made) return made;
  std::vector<float> own;
  if (commit.left_out) sent.contribution.weight = 0;
  if (sent.contribution.needs_own) own = own_as_decoded(sent.contribution, record);
  if (sent.contribution.prepare(mean, own) != commit.digest) return another_state(commit.round);
  return {};
}

Result<rounds::CaughtUp> Strategy::catch_up(int64_t step) {
  while (const auto task = rounds_.next_missed()) {
    if (replica_.before_change) replica_.before_change();
    if (auto done = perform(*task); !done) return tl::unexpected(done.error());
  }
  rest();
  return rounds_.caught_up(step);
}

Result<void> Strategy::perform(const rounds::Absorb& missed) {
  const collective::Commit& commit = missed.commit;
  note(commit);
  if (!rounds_.is_missing(commit)) {
    rounds_.passed(commit);
    return {};
  }
  if (!method_.takes_newcomers) return without_this_island(commit.round);
  note_change();
  if (auto taken = take_in(commit, *commit.record); !taken) return taken;
  records_.push_back({.step = step_,
                      .commit = commit,
                      .abstained = true,
                      .before = rounds_.absorbed(commit),
                      .num_values = commit.record->count,
                      .codec = std::string(codec_->name())});
  return {};
}

Result<void> Strategy::take_in(const collective::Commit& commit,
                               const collective::CommittedRound& record) {
  std::vector<float> mean(record.count);
  if (auto made = decode_mean(record, *codec_, mean); !made) return made;
  const int64_t number = pace().number(commit.fragment, commit.round, commit.step);
  if (absorb(commit, number, mean) != commit.digest) return another_state(commit.round);
  return {};
}

void Strategy::follow(int64_t begin, int64_t end, const at::Tensor& now, const at::Tensor& before,
                      float share) {
  at::Tensor live = replica_.values_P.slice(0, begin, end);
  live.add_(at::sub(now, before).to(live.device()), share);
}

void Strategy::serve() {
  if (!method_.takes_newcomers) return;
  averager_.serve_state(
      [this](int32_t fragment, int64_t round) { return export_state(fragment, round); });
}

size_t Strategy::state_bytes(int64_t fragment) const {
  size_t size = 0;
  for (const auto& tensor : state_of(fragment)) {
    for (const at::Tensor& piece : tensor) size += static_cast<size_t>(piece.nbytes());
  }
  return size;
}

std::shared_ptr<const Bytes> Strategy::export_state(int64_t fragment, int64_t round) const {
  const std::scoped_lock lock(state_mutex_);
  if (fragment < 0 || fragment >= std::ssize(applied()) ||
      applied()[static_cast<size_t>(fragment)] != round) {
    return nullptr;
  }
  auto bytes = std::make_shared<Bytes>();
  bytes->reserve(state_bytes(fragment));
  for (const auto& tensor : state_of(fragment)) {
    for (const at::Tensor& piece : tensor) {
      const at::Tensor host = piece.cpu();
      const auto part = bytes_of(host);
      bytes->insert(bytes->end(), part.begin(), part.end());
    }
  }
  return bytes;
}

Result<void> Strategy::import_state(int64_t fragment, int64_t round, const Digest& digest,
                                    std::span<const std::byte> bytes) {
  const auto tensors = state_of(fragment);
  if (bytes.size() != state_bytes(fragment)) {
    return failure(fmt::format("a state of {} bytes, where fragment {} has {}", bytes.size(),
                               fragment, state_bytes(fragment)));
  }
  publish(fragment, round, [&] {
    size_t begin = 0;
    for (const auto& tensor : tensors) {
      for (const at::Tensor& piece : tensor) {
        const auto size = static_cast<size_t>(piece.nbytes());
        piece.copy_(view_of(bytes.subspan(begin, size)));
        begin += size;
      }
    }
  });
  if (state_digest(tensors) == digest) {
    rounds_.imported(fragment, digest);
    return {};
  }
  return failure(
      fmt::format("the state of fragment {} after round {} that came from the other "
                  "islands is not the committed one",
                  fragment, round));
}

void Strategy::joined(int64_t step, int64_t last_round) {
  step_ = step;
  rounds_.joined(step, last_round);
  do_join();
}

void Strategy::restore_held(std::vector<Digest> held, std::vector<int64_t> applied) {
  const std::scoped_lock lock(state_mutex_);
  rounds_.restore(std::move(held), std::move(applied));
}

Result<void> Strategy::replay(const collective::CommittedRound& round, const Digest& before) {
  if (!rounds_.follows(round.fragment, before)) {
    return failure(fmt::format("round {} does not follow what is here", round.round));
  }
  const collective::Commit commit{
      .round = round.round, .fragment = round.fragment, .step = round.step, .digest = round.digest};
  if (auto taken = take_in(commit, round); !taken) return taken;
  rounds_.replayed(round.fragment, round.digest);
  return {};
}

void Strategy::replayed(int64_t step) {
  step_ = step;
  rounds_.resumed_at_commit(step);
  do_join();
}

void Strategy::resumed(int64_t step) {
  step_ = step;
  do_resume(rounds_.resumed(step));
}

Digest state_digest(const std::vector<std::vector<at::Tensor>>& tensors) {
  Sha256 hash;
  for (const auto& tensor : tensors) {
    if (tensor.size() == 1) {
      hash.update(tree_digest(bytes_of(tensor.front().cpu())));
      continue;
    }
    Bytes whole;
    for (const at::Tensor& piece : tensor) {
      const at::Tensor host = piece.cpu();
      const auto part = bytes_of(host);
      whole.insert(whole.end(), part.begin(), part.end());
    }
    hash.update(tree_digest(whole));
  }
  return hash.finish();
}

}  // namespace atl::sync
