#include "atoll/sync/streaming_diloco.h"

#include <ATen/ops/sub.h>

#include <algorithm>
#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {
namespace {

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
      keeps_flights_(method::delay(options) > 0),
      alpha_(static_cast<float>(options.fragment_update_alpha)),
      outer_(method::make_outer_optimizer(options)),
      fragments_(
          method::make_fragments(replica_.specs, options.fragment_pattern, options.num_fragments)),
      now_(outer_, [this] { return lasting(replica_.values_P.numel(), outer_device()); }) {
  now_.theta_P.copy_(replica_.values_P);
  bring(now_.theta_P, origin_P_);
}

void StreamingDiLoCo::launch(const OwnRound& own) { send(own, delta_of(own.fragment)); }

at::Tensor StreamingDiLoCo::delta_of(int64_t fragment) const {
  const method::Fragment& part = fragments_[static_cast<size_t>(fragment)];
  const at::Tensor delta_F = outer_zeros(part.size, origin_P_.device());
  for_each_range(part, [&](const method::Range& range, int64_t packed) {
    at::Tensor piece = delta_F.slice(0, packed, packed + range.end - range.begin);
    at::sub_out(piece, origin_P_.slice(0, range.begin, range.end),
                replica_.values_P.slice(0, range.begin, range.end));
  });
  return delta_F;
}

void StreamingDiLoCo::send(const OwnRound& own, at::Tensor delta_F) {
  Flight& flight = flights_.insert_or_assign(own.round, flight_of(own)).first->second;
  flight.delta_F = std::move(delta_F);
  const int64_t tokens = weight(own, flight.delta_F, tokens_of(own));
  begin(own, flight.delta_F,
        {.weight = tokens,
         .prepare = [this, &flight](std::span<const float> mean_F,
                                    std::span<const float>) { return prepare(flight, mean_F); }},
        fragments_[static_cast<size_t>(own.fragment)].ranges);
}

StreamingDiLoCo::Flight StreamingDiLoCo::flight_of(const OwnRound& own) const {
  const int64_t size = fragments_[static_cast<size_t>(own.fragment)].size;
  return {.own = own, .delta_F = {}, .next_F = OuterState(outer_, [&] {
                                       return outer_zeros(size, outer_device());
                                     })};
}

/// Runs beside training: it reads the global copy, which only apply_front() of this fragment
/// writes.
Digest StreamingDiLoCo::prepare(Flight& flight, std::span<const float> mean_F) {
  const method::Fragment& part = fragments_[static_cast<size_t>(flight.own.fragment)];
  for_each_range(part, [&](const method::Range& range, int64_t packed) {
    const int64_t size = range.end - range.begin;
    OuterState next = flight.next_F.slice(packed, packed + size);
    now_.slice(range.begin, range.end)
        .step(outer_, flight.own.number,
              mean_F.subspan(static_cast<size_t>(packed), static_cast<size_t>(size)), next);
  });
  return flight.next_F.digest();
}

void StreamingDiLoCo::take(const OwnRound& own, Fate fate) {
  Use use = Use::kTake;                         // What cannot be used is not mixed in either.
  if (fate == Fate::kLate) use = Use::kFollow;  // What was not counted is not lost.
  if (fate == Fate::kOvertaken) use = Use::kGoOn;
  if (fate == Fate::kCounted && alpha_ != 0) use = Use::kMix;
  adopt(flights_.at(own.round), use);
  flights_.erase(own.round);
}

void StreamingDiLoCo::adopt(const Flight& flight, Use use) {
  const method::Fragment& part = fragments_[static_cast<size_t>(flight.own.fragment)];
  if (use == Use::kFollow || use == Use::kGoOn) {
    const float share = use == Use::kFollow ? 1 : 1 - alpha_;
    for_each_range(part, [&](const method::Range& range, int64_t packed) {
      const int64_t end = packed + range.end - range.begin;
      follow(range.begin, range.end, flight.next_F.theta_P.slice(0, packed, end),
             now_.theta_P.slice(0, range.begin, range.end), share);
      if (use == Use::kFollow) return;
      at::Tensor live = replica_.values_P.slice(0, range.begin, range.end);
      live.add_(flight.delta_F.slice(0, packed, end), share);
    });
  }
  publish(flight.own.fragment, flight.own.round, [&] {
    for_each_range(part, [&](const method::Range& range, int64_t packed) {
      now_.slice(range.begin, range.end)
          .copy_(flight.next_F.slice(packed, packed + range.end - range.begin));
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

Digest StreamingDiLoCo::absorb(const collective::Commit& commit, int64_t number,
                               std::span<const float> mean_F) {
  Flight flight = flight_of({.round = commit.round, .fragment = commit.fragment, .number = number});
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

void StreamingDiLoCo::do_join() {
  bring(now_.theta_P, origin_P_);
  replica_.values_P.copy_(origin_P_);
}

at::Tensor StreamingDiLoCo::global_parameters() const { return now_.theta_P; }

std::vector<std::pair<std::string, at::Tensor>> StreamingDiLoCo::state() {
  std::vector<std::pair<std::string, at::Tensor>> tensors = now_.buffers();
  if (keeps_flights_) {
    in_flight_P_ = outer_zeros(now_.theta_P.numel());
    for (const auto& [round, flight] : flights_) {
      scatter(fragments_[static_cast<size_t>(flight.own.fragment)], flight.delta_F, in_flight_P_);
    }
    tensors.emplace_back("outer.in_flight", in_flight_P_);
  }
  return tensors;
}

void StreamingDiLoCo::restore_global(const at::Tensor& global_P) {
  now_.theta_P.copy_(global_P);
  bring(now_.theta_P, origin_P_);
}

void StreamingDiLoCo::do_resume(const std::vector<OwnRound>& on_their_way) {
  if (!in_flight_P_.defined()) return;
  for (const OwnRound& own : on_their_way) {
    const method::Fragment& part = fragments_[static_cast<size_t>(own.fragment)];
    at::Tensor delta_F = outer_zeros(part.size, origin_P_.device());
    gather(part, in_flight_P_, delta_F);
    send(own, std::move(delta_F));
  }
  in_flight_P_ = at::Tensor();
}

}  // namespace atl::sync
