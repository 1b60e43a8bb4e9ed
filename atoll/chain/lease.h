#pragma once
// What may stand in a lease, and what of it decides where texts go. Pure, thread-safe.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/messages.h"

namespace atl::chain {

/// A server renews its lease so often.
constexpr Duration kLeaseRenewal = std::chrono::seconds(1);
/// It ends so long after the last renewal.
constexpr Duration kLeaseLength = std::chrono::seconds(4);

constexpr int32_t kMostLayers = 4096;  // Of a model.
constexpr size_t kMostLinks = 16;      // That one server tells of.
constexpr size_t kMaxDigest = 128;     // Bytes.

/// A digest names the model's files and, behind a '+', in what type its layers compute where that
/// is another one (weights/served_type.h): "ab12...", "ab12...+int8". Servers of the same files can
/// have them from each other, but those of two types are of two models.
std::string files_of(const std::string& digest);
/// "int8"; empty: as stored.
std::string type_of(const std::string& digest);

/// What is wrong with a lease that a stranger offers ("layers 4 to 90 of 32"); empty if nothing.
std::string fault_of(const Lease& lease);

/// What is wrong with layers that a server is told to serve; empty if nothing.
std::string fault_of(const Span& placed, const Lease& lease);

/// Whether whoever routes has to know of this change at once: not of loads and speeds.
bool differ_for_routes(const Lease& before, const Lease& after);

/// Whether each layer of their model is with one of them that takes sessions; and, where a gateway
/// needs that, the head with some of the first and of the last layers.
bool are_all_served(const std::vector<Lease>& servers, int32_t num_layers, bool needs_head);

/// "waiting", "loading", "serving", "draining": in the order of the enumerators.
std::span<const std::string_view> names_of(LeaseState);

/// "layer 4", "layers 4 to 7": for people, the last one counts.
std::string text_of(const Span& layers);

}  // namespace atl::chain
