#include "atoll/sync/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include <ATen/ops/sub.h>

#include "atoll/base/hash.h"
#include "atoll/method/topology.h"
#include "atoll/sync/device_codec.h"
#include "atoll/sync/host.h"

namespace atl::sync {

Strategy::Strategy(const method::SyncOptions& options, Replica replica,
                   collective::Averager& averager, const Clock& clock)
    : replica_(std::move(replica)),
      averager_(averager),
      clock_(clock),
      run_clock_(replica_.last_step),
      method_(method::method_of(options)),
      codec_(codec::make_codec(method::codec_name(options))),
      topology_(method::topology_of(options, *codec_, averager.num_members())),
      keeps_outer_near_(options.keeps_outer_near()),
      measures_layers_(options.layer_metrics),
      steps_since_(static_cast<size_t>(method::num_fragments(options))),
      applied_(steps_since_.size(), -1),
      held_(method_.takes_newcomers ? steps_since_.size() : 0) {}

Result<void> Strategy::reduce_gradients(int64_t step) {
  return timed(step, &Strategy::do_reduce_gradients);
}

int64_t Strategy::step_after(int64_t step) {
  if (!replica_.is_elastic) return step + 1;
  run_clock_.trained();
  return run_clock_.now();
}

Result<void> Strategy::after_step(int64_t step) {
  for (int64_t& steps : steps_since_) steps += 1;
  return timed(step, &Strategy::do_after_step);
}

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

at::Device Strategy::outer_device() const {
  return keeps_outer_near_ ? replica_.values_P.device() : at::kCPU;
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

void Strategy::begin(const at::Tensor& values, collective::Contribution contribution,
                     std::span<const method::Range> ranges, int64_t num_steps) {
  if (contribution.codec == nullptr) contribution.codec = codec_.get();
  if (is_on_device(values)) {
    contribution.device_values = device_values(values, *contribution.codec);
  } else {
    contribution.values = span_of(values);
  }
  contribution.topology = topology_;
  if (replica_.num_trained != nullptr) contribution.num_trained = *replica_.num_trained;
  OpenRound& open = open_rounds_[contribution.round];
  open.fragment = contribution.fragment;
  open.num_steps = num_steps < 0 ? steps_since(contribution.fragment) : num_steps;
  // Elastic: who has learned nothing since has nothing to abstain with.
  open.abstained = contribution.weight == 0 && (open.num_steps > 0 || !replica_.is_elastic);
  if (measures_layers_) {
    const auto [found, is_new] = slices_.try_emplace(contribution.fragment);
    if (is_new) {
      const std::array whole = {method::Range{0, replica_.values_P.numel()}};
      found->second = method::layer_slices(replica_.specs, ranges.empty() ? whole : ranges);
    }
    contribution.needs_own = true;
    contribution.prepare = [&open, &slices = found->second,
                            prepare = std::move(contribution.prepare)](std::span<const float> mean,
                                                                       std::span<const float> own) {
      open.sums = method::measure_layers(slices, own, mean);
      return prepare(mean, own);
    };
  }
  contribution.prepare = [this, &open, prepare = std::move(contribution.prepare)](
                             std::span<const float> mean, std::span<const float> own) {
    const Time begin = clock_.now();
    const Digest digest = prepare(mean, own);
    open.prepare_seconds = seconds(clock_.now() - begin);
    return digest;
  };
  open.contribution = contribution;
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
    if (auto commit = commit_of(round); !commit) return tl::unexpected(commit.error());
    open_rounds_.erase(round);
  }
  return {};
}

Digest Strategy::note_applied(const collective::Commit& commit) {
  // A row counts with the first commit of any fragment that has it.
  if (replica_.is_elastic)
    run_clock_.committed(commit.step, *std::ranges::min_element(steps_since_));
  if (held_.empty()) return {};
  const Digest before = state_name(held_);
  held_[static_cast<size_t>(commit.fragment)] = commit.digest;
  return before;
}

void Strategy::note(const collective::Commit& commit) {
  stats_.rounds += 1;
  stats_.digest = hex(commit.digest);
  stats_.stop_requested = stats_.stop_requested || commit.stop;
}

Result<collective::Commit> Strategy::commit_of(int64_t round) {
  const Time begin = clock_.now();
  auto commit = averager_.wait(round);
  stats_.blocked_seconds += seconds(clock_.now() - begin);
  return commit;
}

Result<Strategy::Fate> Strategy::wait(int64_t round) {
  auto commit = commit_of(round);
  if (!commit) return tl::unexpected(commit.error());
  if (commit->missed) {
    if (auto taken = take_result(open_rounds_.at(round), *commit); !taken) {
      return tl::unexpected(taken.error());
    }
  }
  const OpenRound open = std::move(open_rounds_.extract(round).mapped());
  note(*commit);
  const bool included = commit->included;
  if (!included && !takes_late_rounds()) return without_this_island(round);
  if (included) steps_since_[static_cast<size_t>(open.fragment)] -= open.num_steps;
  const Fate fate = !included          ? Fate::kLate
                    : open.abstained   ? Fate::kAbstained
                    : commit->left_out ? Fate::kLeftOut
                                       : Fate::kCounted;
  RoundRecord record{.step = step_,
                     .fragment = open.fragment,
                     .abstained = fate != Fate::kCounted,
                     .before = note_applied(*commit),
                     .num_values = open.contribution.num_values(),
                     .codec = std::string(open.contribution.codec->name()),
                     .prepare_seconds = open.prepare_seconds};
  if (measures_layers_) {
    record.layers = method::layer_records(slices_[open.fragment], open.sums, commit->own_share);
  }
  record.commit = *std::move(commit);
  records_.push_back(std::move(record));
  return fate;
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
Result<void> Strategy::take_result(OpenRound& open, const collective::Commit& commit) {
  const collective::CommittedRound& record = *commit.record;
  std::vector<float> mean(record.count);
  if (auto made = decode_mean(record, *open.contribution.codec, mean); !made) return made;
  std::vector<float> own;
  if (commit.left_out) open.contribution.weight = 0;
  if (open.contribution.needs_own) own = own_as_decoded(open.contribution, record);
  if (open.contribution.prepare(mean, own) != commit.digest) return another_state(commit.round);
  return {};
}

Result<int64_t> Strategy::catch_up(int64_t step) {
  while (!(replica_.is_elastic && stats_.stop_requested)) {  // Nothing is behind the stop.
    const auto taken = take_next_missed();
    if (!taken) return tl::unexpected(taken.error());
    if (!*taken) break;
    if (replica_.is_elastic && is_kept(step)) break;  // Before it is gone.
    // The last step is everybody's own: there all fragments come together.
    if (!replica_.is_elastic) step = std::max(step, std::min(newest_step_, replica_.last_step - 1));
  }
  if (has_last_rounds()) run_clock_.start(replica_.last_step);
  if (replica_.is_elastic) return std::max(step, run_clock_.now());
  if (const auto position = averager_.take_position()) {
    step = std::max(step, std::min(*position, next_due(step) - 1));
  }
  return step;
}

Result<bool> Strategy::take_next_missed() {
  if (!missed_) missed_ = averager_.take_missed();
  if (!missed_) return false;
  if (replica_.before_change) replica_.before_change();
  if (auto settled = settle(missed_->round); !settled || *settled) return settled;
  const collective::Commit commit = *std::exchange(missed_, std::nullopt);
  newest_step_ = commit.step;
  if (auto taken = take_missed(commit); !taken) return tl::unexpected(taken.error());
  return true;
}

Result<void> Strategy::take_missed(const collective::Commit& commit) {
  note(commit);
  const auto fragment = static_cast<size_t>(commit.fragment);
  if (fragment >= applied_.size() || is_applied(commit.fragment, commit.round)) return {};
  if (!takes_late_rounds()) return without_this_island(commit.round);
  std::vector<float> mean(commit.record->count);
  if (auto made = decode_mean(*commit.record, *codec_, mean); !made) return made;
  if (absorb(commit, mean) != commit.digest) return another_state(commit.round);
  records_.push_back({.step = step_,
                      .commit = commit,
                      .fragment = commit.fragment,
                      .abstained = true,
                      .before = note_applied(commit),
                      .num_values = mean.size(),
                      .codec = std::string(codec_->name())});
  return {};
}

void Strategy::follow(int64_t begin, int64_t end, const at::Tensor& now, const at::Tensor& before,
                      float share) {
  at::Tensor live = replica_.values_P.slice(0, begin, end);
  live.add_(at::sub(now, before).to(live.device()), share);
}

bool Strategy::is_applied(int64_t fragment, int64_t round) const {
  const std::scoped_lock lock(state_mutex_);
  return applied_[static_cast<size_t>(fragment)] >= round;
}

void Strategy::serve() {
  if (!takes_late_rounds()) return;
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
  if (fragment < 0 || static_cast<size_t>(fragment) >= applied_.size() ||
      applied_[static_cast<size_t>(fragment)] != round) {
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
    held_.at(static_cast<size_t>(fragment)) = digest;
    return {};
  }
  return failure(
      fmt::format("the state of fragment {} after round {} that came from the other "
                  "islands is not the committed one",
                  fragment, round));
}

void Strategy::joined(int64_t step, int64_t last_round) {
  step_ = step;
  last_round_ = last_round;
  run_clock_.start(step);
  std::ranges::fill(steps_since_, 0);
  do_join(step);
}

void Strategy::restore_held(std::vector<Digest> held) {
  // A checkpoint that does not say it is of before the first commit, or of another program.
  if (held.size() == held_.size()) held_ = std::move(held);
}

Result<void> Strategy::replay(const collective::CommittedRound& round, const Digest& before) {
  const auto fragment = static_cast<size_t>(round.fragment);
  if (fragment >= held_.size() || state_name(held_) != before) {
    return failure(fmt::format("round {} does not follow what is here", round.round));
  }
  std::vector<float> mean(round.count);
  if (auto made = decode_mean(round, *codec_, mean); !made) return made;
  const collective::Commit commit{
      .round = round.round, .fragment = round.fragment, .step = round.step, .digest = round.digest};
  if (absorb(commit, mean) != round.digest) return another_state(round.round);
  held_[fragment] = round.digest;
  return {};
}

void Strategy::replayed(int64_t step) {
  // The run's rounds begin anew; what they rest on is what it begins with.
  std::ranges::fill(applied_, -1);
  joined(step);
}

void Strategy::resumed(int64_t step) {
  step_ = step;
  run_clock_.start(step);
  do_resume(step);
}

Digest state_name(std::span<const Digest> held) {
  Sha256 hash;
  for (const Digest& digest : held) hash.update(digest);
  return hash.finish();
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
