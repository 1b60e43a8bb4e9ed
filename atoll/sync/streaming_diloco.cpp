#include "atoll/sync/streaming_diloco.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {
namespace {

at::Tensor empty_like_fragment(const Fragment& fragment, const at::Tensor& like_P) {
  return at::empty({fragment.size}, like_P.options());
}

/// Calls use(range, begin of the range within the packed fragment).
template <typename Use>
void for_each_range(const Fragment& fragment, Use use) {
  int64_t packed = 0;
  for (const Range& range : fragment.ranges) {
    use(range, packed);
    packed += range.end - range.begin;
  }
}

/// The fragment's elements of a flat tensor, one behind the other.
void gather(const Fragment& fragment, const at::Tensor& from_P, const at::Tensor& to_F) {
  for_each_range(fragment, [&](const Range& range, int64_t packed) {
    to_F.slice(0, packed, packed + range.end - range.begin)
        .copy_(from_P.slice(0, range.begin, range.end));
  });
}

void scatter(const Fragment& fragment, const at::Tensor& from_F, const at::Tensor& to_P) {
  for_each_range(fragment, [&](const Range& range, int64_t packed) {
    to_P.slice(0, range.begin, range.end)
        .copy_(from_F.slice(0, packed, packed + range.end - range.begin));
  });
}

}  // namespace

StreamingDiLoCo::StreamingDiLoCo(const SyncOptions& options, Replica replica,
                                 collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      delay_(options.fragment_sync_delay),
      alpha_(static_cast<float>(options.fragment_update_alpha)),
      outer_(make_outer_optimizer(options)),
      fragments_(make_fragments(replica_.specs, options.fragment_pattern, options.num_fragments)),
      schedule_(options.sync_every, options.num_fragments, replica_.last_step),
      now_(outer_, replica_.values_P.numel()) {
  now_.theta_P.copy_(replica_.values_P);
  bring(now_.theta_P, origin_P_);
}

/// In between, fragments are of different ages.
bool StreamingDiLoCo::syncs_after(int64_t step) const {
  if (alpha_ != 0) return false;
  return step == schedule_.last_step() ||
         (delay_ == 0 && fragments_.size() == 1 && schedule_.due(step).has_value());
}

Result<void> StreamingDiLoCo::do_after_step(int64_t step) {
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

void StreamingDiLoCo::send(int64_t fragment, int64_t step) {
  const Fragment& part = fragments_[static_cast<size_t>(fragment)];
  at::Tensor delta_F = empty_like_fragment(part, origin_P_);
  for_each_range(part, [&](const Range& range, int64_t packed) {
    at::Tensor piece = delta_F.slice(0, packed, packed + range.end - range.begin);
    at::sub_out(piece, origin_P_.slice(0, range.begin, range.end),
                replica_.values_P.slice(0, range.begin, range.end));
  });
  launch(fragment, step, std::move(delta_F));
}

void StreamingDiLoCo::launch(int64_t fragment, int64_t step, at::Tensor delta_F) {
  const Fragment& part = fragments_[static_cast<size_t>(fragment)];
  flights_.push_back({.fragment = fragment,
                      .round = schedule_.round(fragment, step),
                      .number = schedule_.number(fragment, step),
                      .due = step + delay_,
                      .delta_F = std::move(delta_F)});
  Flight& flight = flights_.back();  // A deque: it stays where it is.
  const int64_t period = step - schedule_.last_sent(fragment, step - 1);
  const int64_t tokens = weight(flight.round, flight.delta_F, period * replica_.tokens_per_step);
  flight.counts = tokens > 0;
  begin(flight.delta_F,
        {.round = flight.round,
         .fragment = static_cast<int32_t>(fragment),
         .step = step,
         .weight = tokens,
         .prepare = [this, &flight](std::span<const float> mean_F,
                                    std::span<const float>) { return prepare(flight, mean_F); }},
        part.ranges);
}

/// Runs beside training: it reads the global copy, which only apply_front() of this fragment
/// writes.
Digest StreamingDiLoCo::prepare(Flight& flight, std::span<const float> mean_F) {
  const Fragment& part = fragments_[static_cast<size_t>(flight.fragment)];
  OuterState& next_F = flight.next_F.emplace(outer_, part.size);
  for_each_range(part, [&](const Range& range, int64_t packed) {
    const int64_t size = range.end - range.begin;
    outer_.step(
        flight.number, mean_F.subspan(static_cast<size_t>(packed), static_cast<size_t>(size)),
        now_.slice(range.begin, range.end).read(), next_F.slice(packed, packed + size).write());
  });
  return next_F.digest();
}

Result<void> StreamingDiLoCo::apply_front() {
  Flight& flight = flights_.front();
  if (auto done = wait(flight.round); !done) return done;
  const Fragment& part = fragments_[static_cast<size_t>(flight.fragment)];
  for_each_range(part, [&](const Range& range, int64_t packed) {
    now_.slice(range.begin, range.end)
        .copy_(flight.next_F->slice(packed, packed + range.end - range.begin));
  });
  for (const Range& range : part.ranges) {
    const at::Tensor live = replica_.values_P.slice(0, range.begin, range.end);
    at::Tensor global = origin_P_.slice(0, range.begin, range.end);
    bring(now_.theta_P.slice(0, range.begin, range.end), global);
    if (alpha_ == 0 || !flight.counts) {  // What cannot be used is not mixed in either.
      live.copy_(global);
    } else if (alpha_ != 1) {
      live.mul_(alpha_).add_(global, 1 - alpha_);
    }
  }
  flights_.pop_front();
  return {};
}

at::Tensor StreamingDiLoCo::global_parameters() const { return now_.theta_P; }

std::vector<std::pair<std::string, at::Tensor>> StreamingDiLoCo::state() {
  std::vector<std::pair<std::string, at::Tensor>> tensors = now_.buffers();
  if (delay_ > 0) {
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

void StreamingDiLoCo::resumed(int64_t step) {
  if (!in_flight_P_.defined()) return;
  for (int64_t back = delay_ - 1; back >= 0; --back) {  // In the order they were sent.
    const int64_t sent = step - back;
    const auto fragment = schedule_.due(sent);
    if (!fragment || step == schedule_.last_step()) continue;
    const Fragment& part = fragments_[static_cast<size_t>(*fragment)];
    at::Tensor delta_F = empty_like_fragment(part, origin_P_);
    gather(part, in_flight_P_, delta_F);
    launch(*fragment, sent, std::move(delta_F));
  }
  in_flight_P_ = at::Tensor();
}

}  // namespace atl::sync
