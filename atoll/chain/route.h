#pragma once
// Which servers make a chain: the one by which a session ends soonest, by what is known of their
// speeds and of the lines between them. Pure.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/chain/messages.h"

namespace atl::chain {

/// A server as a route takes it.
struct Candidate {
  std::string address;
  Span layers;
  double layers_per_s = 0;        // For one token; 0: unknown.
  double token_layers_per_s = 0;  // For many at once; 0: unknown.
  int32_t num_sessions = 0;       // That it serves already.
  bool is_full = false;           // Without room for this text beside those.
  bool has_head = false;
};

struct RouteQuery {
  Span layers;             // All of them, or those of servers that are gone.
  std::string from;        // Who sends to the first one; empty: the gateway.
  std::string to;          // To whom the last one sends; empty: the gateway.
  int64_t num_prompt = 1;  // Tokens that are read at once,
  int64_t num_answer = 1;  // and one by one.
  /// Whom the gateway sends to, and who sends to it, have to have embedding and head.
  bool needs_head = false;
  /// One way, in seconds, between two of them; empty: the gateway. Infinite where it is known that
  /// they do not reach each other.
  std::function<double(const std::string& from, const std::string& to)> delay;
};

/// Nothing when some layer is with none of them.
std::optional<std::vector<Hop>> choose_route(std::span<const Candidate> candidates,
                                             const RouteQuery& query);

/// Until a text is through by that route, in seconds; infinite where some of its servers are no
/// candidates.
double seconds_by(std::span<const Hop> route, std::span<const Candidate> candidates,
                  const RouteQuery& query);

/// The first layers of these that none of them has; empty when each layer is somewhere.
Span missing_layers(std::span<const Candidate> candidates, const Span& layers);

/// Whether the first and the last of these layers are with some that have a head.
bool have_heads(std::span<const Candidate> candidates, const Span& layers);

}  // namespace atl::chain
