#include "atoll/chain/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "atoll/base/name.h"
#include "atoll/chain/route.h"
#include "atoll/net/address.h"

namespace atl::chain {
namespace {

constexpr std::array<std::string_view, 4> kStates = {"waiting", "loading", "serving", "draining"};

constexpr size_t kMaxModelName = 128;
constexpr size_t kMaxAddress = 260;     // A host's name has 253 at most.
constexpr double kHighestSpeed = 1e12;  // Layers per second.

bool is_plain(const std::string& text, size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes && printable(text) == text;
}

bool is_speed(double value) { return value >= 0 && value <= kHighestSpeed; }  // NaN is none.

bool is_address(const std::string& text) {
  return is_plain(text, kMaxAddress) && net::parse_address(text).has_value();
}

bool is_link(const Link& link) {
  return is_address(link.address) && std::isfinite(link.round_trip_ms) && link.round_trip_ms >= 0;
}

}  // namespace

std::span<const std::string_view> names_of(LeaseState) { return kStates; }

std::string files_of(const std::string& digest) { return digest.substr(0, digest.find('+')); }

std::string type_of(const std::string& digest) {
  const size_t plus = digest.find('+');
  return plus == std::string::npos ? std::string() : digest.substr(plus + 1);
}

std::string text_of(const Span& layers) {
  if (layers.size() == 1) return fmt::format("layer {}", layers.begin);
  return fmt::format("layers {} to {}", layers.begin, layers.end - 1);
}

std::string fault_of(const Lease& lease) {
  if (!is_valid_name(lease.name)) return "its name is none";
  if (!is_address(lease.address)) return "its address is none";
  if (!is_plain(lease.model, kMaxModelName)) return "its model has no name, or one too long";
  if (!is_plain(lease.digest, kMaxDigest)) return "its model's digest is none";
  if (lease.num_layers < 1 || lease.num_layers > kMostLayers) {
    return fmt::format("a model of {} layers", lease.num_layers);
  }
  if (lease.max_layers < 1 || lease.max_layers > kMostLayers) {
    return fmt::format("memory for {} layers", lease.max_layers);
  }
  const bool waits = lease.state == LeaseState::kWaiting;
  if (waits && lease.layers != Span{}) return "it waits for layers and has some";
  if (waits && lease.is_fixed) return "its layers are fixed and it waits for some";
  if (const std::string fault = waits ? "" : fault_of(lease.layers, lease); !fault.empty()) {
    return fault;
  }
  if (!is_speed(lease.layers_per_s) || !is_speed(lease.token_layers_per_s) ||
      !is_speed(lease.neighbour_layers_per_s)) {
    return "its speed is none";
  }
  const bool has_room = lease.num_free >= 0 && lease.num_free <= lease.num_positions;
  if (!has_room || lease.num_sessions < 0) return "its memory or sessions are no counts";
  if (lease.links.size() > kMostLinks) return fmt::format("{} links", lease.links.size());
  if (!std::ranges::all_of(lease.links, is_link)) return "a link is none";
  return {};
}

std::string fault_of(const Span& placed, const Lease& lease) {
  const bool is_within =
      placed.begin >= 0 && placed.begin < placed.end && placed.end <= lease.num_layers;
  if (!is_within) {
    return fmt::format("layers {} to before {} of {}", placed.begin, placed.end, lease.num_layers);
  }
  if (placed.size() > lease.max_layers) {
    return fmt::format("{} layers where there is memory for {}", placed.size(), lease.max_layers);
  }
  return {};
}

bool differ_for_routes(const Lease& before, const Lease& after) {
  return before.state != after.state || before.layers != after.layers ||
         before.address != after.address || before.digest != after.digest ||
         before.has_head != after.has_head;
}

bool are_all_served(const std::vector<Lease>& servers, int32_t num_layers, bool needs_head) {
  std::vector<Candidate> serving;
  for (const Lease& lease : servers) {
    if (lease.state != LeaseState::kServing) continue;
    serving.push_back({.address = {}, .layers = lease.layers, .has_head = lease.has_head});
  }
  const Span all{0, num_layers};
  return missing_layers(serving, all).size() == 0 && (!needs_head || have_heads(serving, all));
}

}  // namespace atl::chain
