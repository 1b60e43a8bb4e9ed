#pragma once
// Which layers each server should serve. Pure functions, the same for all who ask.
//
// A server that serves n layers at s layers per second passes on s / n tokens per second. What a
// layer gets is the sum over the servers that have it; what the model gets is the least of these,
// the bottleneck. With S the sum of all speeds and L layers no placement gets more than S / L.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/chain/messages.h"

namespace atl::chain {

/// A server, for placement. `speed`: layers per second, above 0. `max_layers`: at least 1.
struct Host {
  double speed = 1;
  int32_t max_layers = 1;
  /// That it has or was given; empty (0, 0): none.
  Span layers;
  bool may_move = false;
  /// It serves its layers now. What is only to come lets nobody leave.
  bool serves = false;
};

/// Tokens per second that each layer gets, of what all hosts have or were given.
std::vector<double> flow_of(const std::vector<Host>& hosts, int32_t num_layers);
/// How many layers nobody has.
int32_t num_gaps(const std::vector<double>& flow);
double bottleneck(const std::vector<double>& flow);

/// The layers that one more host gains most by. First the most that nobody has; then what lowers
/// the sum of 1 / flow most: the weakest, and as many as it can take where all are alike.
Span best_span(const std::vector<double>& flow, double speed, int32_t max_layers);

/// Of a model's layers, how many each host of one chain should serve: in proportion to speed, as
/// far as there is memory. The slowest is as quick as it can be. The sum is `num_layers`, or what
/// there is memory for; a very slow one may get 0.
std::vector<int32_t> shares(const std::vector<Host>& chain, int32_t num_layers);

/// Layers for all hosts that have none, in their order; empty spans for those that have some. Where
/// those that come together can, they make whole chains, as many as possible, each of whose hosts
/// get shares(); the others fill gaps and strengthen what is weakest, one by one.
std::vector<Span> place_newcomers(const std::vector<Host>& hosts, int32_t num_layers);

/// A host that changes its layers.
struct Move {
  size_t host = 0;
  Span layers;
  bool fills_gap = false;

  bool operator==(const Move&) const = default;
};

/// A placement is better by so much, or nobody moves for it: bottlenecks as ratio.
constexpr double kWorthMoving = 1 / 0.75;

/// The first of a few moves that together raise the bottleneck by kWorthMoving, each of which does
/// good; nothing when there are none. Nobody leaves a layer that no other serves. Where nobody has
/// some layers the model cannot be used, and anybody may move so that it can; nothing, where memory
/// does not suffice for that.
std::optional<Move> best_move(std::vector<Host> hosts, int32_t num_layers);

}  // namespace atl::chain
