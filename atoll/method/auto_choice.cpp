#include "atoll/method/auto_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/codec/codec.h"
#include "atoll/method/fragments.h"
#include "atoll/method/method.h"
#include "atoll/method/topology.h"

namespace atl::method {
namespace {

/// Methods that wait for their exchange may wait for this share of the time.
constexpr double kStallShare = 0.05;
/// Of the steps that an exchange may take; the rest is for jitter.
constexpr double kHeadroom = 0.8;

struct Candidate {
  std::string codec;
  int64_t max_delay = 0;  // Inner steps.
};

/// From the least compression to the most. Up to 5 steps cost under 0.5 % of the loss without
/// compression (Streaming DiLoCo, section 4.3).
std::vector<Candidate> candidates(const SyncOptions& options) {
  std::vector<Candidate> out = {{"fp32", 5}, {"bf16", 5}, {"int8", 5}, {"int4", 4}, {"e3m0", 4}};
  const Method& method = method_of(options);
  if (method.left_out == LeftOut::kBothSides) out.push_back({std::string(method.codec), 1});
  return out;
}

/// How many times its values' encoding a member sends in a round.
double copies(collective::Topology topology, int num_members) {
  const double others = num_members - 1;
  return topology == collective::Topology::kGather ? others : 2 * others / num_members;
}

/// The slowest link, and the fastest step: it hides the least.
Measured worst_of(std::span<const Measured> members) {
  Measured worst = members.front();
  for (const Measured& member : members) {
    worst.step_seconds = std::min(worst.step_seconds, member.step_seconds);
    worst.round_seconds = std::max(worst.round_seconds, member.round_seconds);
    worst.bits_per_second = std::min(worst.bits_per_second, member.bits_per_second);
  }
  return worst;
}

}  // namespace

Load load_of(const SyncOptions& options, std::span<const weights::ParameterSpec> specs,
             int num_members) {
  Load load{.num_rounds = num_fragments(options), .num_members = num_members};
  for (const Fragment& fragment :
       make_fragments(specs, options.fragment_pattern, num_fragments(options))) {
    load.largest_round = std::max(load.largest_round, fragment.size);
  }
  return load;
}

double most_bytes(const SyncOptions& options, const Load& load) {
  const auto exact = codec::make_codec("fp32");
  return exact->bits_per_value() / 8 * static_cast<double>(load.largest_round) *
         copies(topology_of(options, *exact, load.num_members), load.num_members);
}

std::string describe(const Choice& choice, std::span<const Measured> members) {
  const Measured worst = worst_of(members);
  return fmt::format(
      "{}{} (fastest step {:.3g} s; slowest line {:.3g} Mbit/s and {:.3g} ms a round; a round of "
      "this will take {:.3g} s, and training wait {:.0f} % of the time)",
      choice.codec, choice.delay > 0 ? fmt::format(", fragment_sync_delay = {}", choice.delay) : "",
      worst.step_seconds, 1e-6 * worst.bits_per_second, 1e3 * worst.round_seconds,
      choice.exchange_seconds, 100 * choice.stall_share);
}

SyncOptions with_choice(SyncOptions options, const Choice& choice) {
  options.codec = choice.codec;
  if (choice.delay > 0) options.fragment_sync_delay = choice.delay;
  return options;
}

Choice choose(const SyncOptions& options, const Load& load, std::span<const Measured> members) {
  ATOLL_CHECK(!members.empty(), "somebody measured");
  const Measured worst = worst_of(members);
  const double period_seconds = static_cast<double>(period(options)) * worst.step_seconds;
  Choice choice;
  for (const Candidate& candidate : candidates(options)) {
    const auto codec = codec::make_codec(candidate.codec);
    const double bits = codec->bits_per_value() * static_cast<double>(load.largest_round) *
                        copies(topology_of(options, *codec, load.num_members), load.num_members);
    choice = {.codec = candidate.codec,
              .exchange_seconds =
                  load.num_members == 1 ? 0 : worst.round_seconds + bits / worst.bits_per_second};
    const double per_period = choice.exchange_seconds * static_cast<double>(load.num_rounds);
    const int64_t longest = std::min(candidate.max_delay, max_delay(options));
    if (longest == 0) {
      const bool is_late = method_of(options).is_late;
      const double waited = is_late ? std::max(0.0, per_period - period_seconds) : per_period;
      choice.stall_share = waited / (period_seconds + waited);
      if (choice.stall_share <= kStallShare) return choice;
      continue;
    }
    for (int64_t delay = 1; delay <= longest; ++delay) {
      choice.delay = delay;
      const double room = kHeadroom * static_cast<double>(delay) * worst.step_seconds;
      // It has to fit between its sending and its use, and all rounds of a period into the period.
      const double waited = std::max(
          static_cast<double>(load.num_rounds) * std::max(0.0, choice.exchange_seconds - room),
          per_period - kHeadroom * period_seconds);
      choice.stall_share = std::max(0.0, waited) / (period_seconds + std::max(0.0, waited));
      if (waited <= 0) return choice;
    }
  }
  return choice;
}

}  // namespace atl::method
