#include "atoll/sync/streaming_diloco.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {
namespace {

at::Tensor empty_like_fragment(const method::Fragment& fragment, const at::Tensor& like_P) {
  return at::empty({fragment.size}, like_P.options());
}

/// Calls use(range, begin of the range within the packed fragment).
template <typename Use>
void for_each_range(const method::Fragment& fragment, Use use) {
  int64_t packed = 0;
  for (const method::Range& range : fragment.ranges) {
    use(range, packed);
    packed += range.end - range.begin;
  }
}

/// The fragment's elements of a flat tensor, one behind the other.
void gather(const method::Fragment& fragment, const at::Tensor& from_P, const at::Tensor& to_F) {
  for_each_range(fragment, [&](const method::Range& range, int64_t packed) {
    to_F.slice(0, packed, packed + range.end - range.begin)
        .copy_(from_P.slice(0, range.begin, range.end));
  });
}

void scatter(const method::Fragment& fragment, const at::Tensor& from_F, const at::Tensor& to_P) {
  for_each_range(fragment, [&](const method::Range& range, int64_t packed) {
    to_P.slice(0, range.begin, range.end)
        .copy_(from_F.slice(0, packed, packed + range.end - range.begin));
  });
}

}  // namespace

StreamingDiLoCo::StreamingDiLoCo(const method::SyncOptions& options, Replica replica,
                                 collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      delay_(options.fragment_sync_delay),
      alpha_(static_cast<float>(options.fragment_update_alpha)),
      outer_(method::make_outer_optimizer(options)),
      fragments_(
          method::make_fragments(replica_.specs, options.fragment_pattern, options.num_fragments)),
      schedule_(options.sync_every, options.num_fragments, replica_.last_step),
      now_(outer_, replica_.values_P.numel(), outer_device()) {
  now_.theta_P.copy_(replica_.values_P);
  bring(now_.theta_P, origin_P_);
}

/// In between, fragments are of different ages. Elastic: what a replica has learned on top of the
/// published state is its own.
bool StreamingDiLoCo::syncs_after(int64_t step) const {
  if (replica_.is_elastic) return true;
  if (alpha_ != 0) return false;
  return step == schedule_.last_step() ||
         (delay_ == 0 && fragments_.size() == 1 && schedule_.due(step).has_value());
}

Result<void> StreamingDiLoCo::do_after_step(int64_t step) {
  if (replica_.is_elastic) return go_on();
  const bool last = step == schedule_.last_step();
  const auto is_due = [&] { return !flights_.empty() && (last || flights_.front().due <= step); };
  const auto fragment = schedule_.due(step);
  if (!fragment && !last && !is_due()) return {};
  while (is_due()) {
    if (auto done = apply_front(); !done) return done;
  }
  if (fragment) send(*fragment, step);
  if (last) {
    for (size_t p = 0; p < fragments_.size(); ++p) send(static_cast<int64_t>(p), step);
  }
  while (is_due()) {
    if (auto done = apply_front(); !done) return done;
  }
  return {};
}

int64_t StreamingDiLoCo::next_due(int64_t step) const {
  int64_t next = step + 1;
  while (next < schedule_.last_step() && !schedule_.due(next)) ++next;
  return std::min(next, schedule_.last_step());
}

void StreamingDiLoCo::send(int64_t fragment, int64_t step) {
  if (is_applied(fragment, schedule_.round(fragment, step))) return;
  launch(flight_after(fragment, step, delta_of(fragment)), step, steps_since(fragment));
}

at::Tensor StreamingDiLoCo::delta_of(int64_t fragment) const {
  const method::Fragment& part = fragments_[static_cast<size_t>(fragment)];
  at::Tensor delta_F = empty_like_fragment(part, origin_P_);
  for_each_range(part, [&](const method::Range& range, int64_t packed) {
    at::Tensor piece = delta_F.slice(0, packed, packed + range.end - range.begin);
    at::sub_out(piece, origin_P_.slice(0, range.begin, range.end),
                replica_.values_P.slice(0, range.begin, range.end));
  });
  return delta_F;
}

StreamingDiLoCo::Flight StreamingDiLoCo::flight_after(int64_t fragment, int64_t step,
                                                      at::Tensor delta_F) const {
  return {.fragment = fragment,
          .round = schedule_.round(fragment, step),
          .number = schedule_.number(fragment, step),
          .due = step + delay_,
          .delta_F = std::move(delta_F)};
}

void StreamingDiLoCo::launch(Flight sent, int64_t step, int64_t num_steps) {
  Flight& flight = flights_.emplace_back(std::move(sent));  // A deque: it stays where it is.
  const method::Fragment& part = fragments_[static_cast<size_t>(flight.fragment)];
  const int64_t tokens = weight(flight.round, flight.delta_F, num_steps * replica_.tokens_per_step);
  begin(flight.delta_F,
        {.round = flight.round,
         .fragment = static_cast<int32_t>(flight.fragment),
         .step = step,
         .weight = tokens,
         .prepare = [this, &flight](std::span<const float> mean_F,
                                    std::span<const float>) { return prepare(flight, mean_F); }},
        part.ranges, num_steps);
}

/// Runs beside training: it reads the global copy, which only apply_front() of this fragment
/// writes.
Digest StreamingDiLoCo::prepare(Flight& flight, std::span<const float> mean_F) {
  const method::Fragment& part = fragments_[static_cast<size_t>(flight.fragment)];
  OuterState& next_F = flight.next_F.emplace(outer_, part.size, outer_device());
  for_each_range(part, [&](const method::Range& range, int64_t packed) {
    const int64_t size = range.end - range.begin;
    OuterState next = next_F.slice(packed, packed + size);
    now_.slice(range.begin, range.end)
        .step(outer_, flight.number,
              mean_F.subspan(static_cast<size_t>(packed), static_cast<size_t>(size)), next);
  });
  return next_F.digest();
}

Result<void> StreamingDiLoCo::apply_front() {
  const int64_t round = flights_.front().round;
  const auto fate = wait(round);
  if (!fate) return tl::unexpected(fate.error());
  take(round, *fate);
  return {};
}

/// Of the oldest flight, as all rounds.
void StreamingDiLoCo::take(int64_t /*round*/, Fate fate) {
  Use use = Use::kTake;                         // What cannot be used is not mixed in either.
  if (fate == Fate::kLate) use = Use::kFollow;  // What was not counted is not lost.
  if (fate == Fate::kCounted && replica_.is_elastic) use = Use::kGoOn;
  if (fate == Fate::kCounted && !replica_.is_elastic && alpha_ != 0) use = Use::kMix;
  adopt(flights_.front(), use);
  flights_.pop_front();
}

int64_t StreamingDiLoCo::number_in_turn(int64_t round) const {
  return round / std::ssize(fragments_) + 1;
}

void StreamingDiLoCo::launch_due(const collective::DueRound& due) {
  launch({.fragment = due.fragment,
          .round = due.round,
          .number = number_in_turn(due.round),
          .delta_F = delta_of(due.fragment)},
         due.step, steps_since(due.fragment));
}

void StreamingDiLoCo::adopt(const Flight& flight, Use use) {
  const method::Fragment& part = fragments_[static_cast<size_t>(flight.fragment)];
  if (use == Use::kFollow || use == Use::kGoOn) {
    const float share = use == Use::kFollow ? 1 : 1 - alpha_;
    for_each_range(part, [&](const method::Range& range, int64_t packed) {
      const int64_t end = packed + range.end - range.begin;
      follow(range.begin, range.end, flight.next_F->theta_P.slice(0, packed, end),
             now_.theta_P.slice(0, range.begin, range.end), share);
      if (use == Use::kFollow) return;
      at::Tensor live = replica_.values_P.slice(0, range.begin, range.end);
      live.add_(flight.delta_F.slice(0, packed, end), share);
    });
  }
  publish(flight.fragment, flight.round, [&] {
    for_each_range(part, [&](const method::Range& range, int64_t packed) {
      now_.slice(range.begin, range.end)
          .copy_(flight.next_F->slice(packed, packed + range.end - range.begin));
    });
  });
  for (const method::Range& range : part.ranges) {
    const at::Tensor live = replica_.values_P.slice(0, range.begin, range.end);
    at::Tensor global = origin_P_.slice(0, range.begin, range.end);
    bring(now_.theta_P.slice(0, range.begin, range.end), global);
    if (use == Use::kTake) {
      live.copy_(global);
    } else if (use == Use::kMix && alpha_ != 1) {
      live.mul_(alpha_).add_(global, 1 - alpha_);
    }
  }
}

Digest StreamingDiLoCo::absorb(const collective::Commit& commit, std::span<const float> mean_F) {
  Flight flight{.fragment = commit.fragment,
                .round = commit.round,
                .number = replica_.is_elastic ? number_in_turn(commit.round)
                                              : schedule_.number(commit.fragment, commit.step)};
  const Digest digest = prepare(flight, mean_F);
  adopt(flight, Use::kFollow);
  return digest;
}

std::vector<std::vector<at::Tensor>> StreamingDiLoCo::state_of(int64_t fragment) const {
  std::vector<std::vector<at::Tensor>> tensors = now_.tensors();
  for (auto& tensor : tensors) {
    const at::Tensor whole_P = tensor.front();
    tensor.clear();
    for (const method::Range& range : fragments_[static_cast<size_t>(fragment)].ranges) {
      tensor.push_back(whole_P.slice(0, range.begin, range.end));
    }
  }
  return tensors;
}

void StreamingDiLoCo::do_join(int64_t /*step*/) {
  bring(now_.theta_P, origin_P_);
  replica_.values_P.copy_(origin_P_);
}

at::Tensor StreamingDiLoCo::global_parameters() const { return now_.theta_P; }

std::vector<std::pair<std::string, at::Tensor>> StreamingDiLoCo::state() {
  std::vector<std::pair<std::string, at::Tensor>> tensors = now_.buffers();
  if (delay_ > 0 && !replica_.is_elastic) {
    in_flight_P_ = host_buffer(now_.theta_P);
    for (const Flight& flight : flights_) {
      scatter(fragments_[static_cast<size_t>(flight.fragment)], flight.delta_F, in_flight_P_);
    }
    tensors.emplace_back("outer.in_flight", in_flight_P_);
  }
  return tensors;
}

void StreamingDiLoCo::restore_global(const at::Tensor& global_P) {
  now_.theta_P.copy_(global_P);
  bring(now_.theta_P, origin_P_);
}

void StreamingDiLoCo::do_resume(int64_t step) {
  // Elastic: a checkpoint holds what was published.
  const bool is_over = replica_.is_elastic || step == schedule_.last_step();
  for (size_t p = 0; p < fragments_.size(); ++p) {
    const auto fragment = static_cast<int64_t>(p);
    set_steps_since(fragment, is_over ? 0 : step - schedule_.last_sent(fragment, step));
  }
  if (!in_flight_P_.defined()) return;
  for (int64_t back = delay_ - 1; back >= 0; --back) {  // In the order they were sent.
    const int64_t sent = step - back;
    const auto fragment = schedule_.due(sent);
    if (!fragment || is_over) continue;
    const method::Fragment& part = fragments_[static_cast<size_t>(*fragment)];
    at::Tensor delta_F = empty_like_fragment(part, origin_P_);
    gather(part, in_flight_P_, delta_F);
    const int64_t period = sent - schedule_.last_sent(*fragment, sent - 1);
    set_steps_since(*fragment, period + back);
    launch(flight_after(*fragment, sent, std::move(delta_F)), sent, period);
  }
  in_flight_P_ = at::Tensor();
}

}  // namespace atl::sync
