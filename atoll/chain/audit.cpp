#include "atoll/chain/audit.h"

#include <fmt/format.h>

#include <algorithm>

namespace atl::chain {
namespace {

/// Also of what is no number.
bool is_wrong(double error) { return !(error <= kMostDifference); }

}  // namespace

bool Audit::is_heard() const {
  return std::ranges::all_of(said, [this](const Testimony& testimony) {
    return std::ssize(testimony.received) == end && std::ssize(testimony.made) == end;
  });
}

void Arrivals::add(uint64_t session, int64_t begin, const std::vector<Fingerprint>& arrived) {
  const bool follows =
      session == session_ && begin >= begin_ && begin <= begin_ + std::ssize(fingerprints_);
  if (!follows) {
    session_ = session;
    begin_ = begin;
  }
  go_back(begin);
  fingerprints_.insert(fingerprints_.end(), arrived.begin(), arrived.end());
}

std::vector<Fingerprint> Arrivals::of(uint64_t session) const {
  return session == session_ ? fingerprints_ : std::vector<Fingerprint>();
}

void Arrivals::go_back(int64_t position) {
  const int64_t left = std::clamp<int64_t>(position - begin_, 0, std::ssize(fingerprints_));
  fingerprints_.resize(static_cast<size_t>(left));
}

Verdict judge(const Recomputed& found, bool is_mixed) {
  using Kind = Verdict::Kind;
  bool behind_restored = false;
  for (size_t i = 0; i < found.hops.size(); ++i) {
    const auto& [received, made, is_restored] = found.hops[i];
    if (is_wrong(received)) {
      if (is_mixed) return {.kind = Kind::kUnknown};
      if (i > 0) return {.kind = Kind::kContradiction, .hop = i - 1};
      return {.kind = Kind::kLiar, .reason = "it says that it got other rows than were sent to it"};
    }
    // Errors that are small where they come from grow on their way.
    behind_restored = behind_restored || is_restored;
    if (is_wrong(made) && behind_restored) return {.kind = Kind::kUnknown};
    if (is_wrong(made)) {
      return {.kind = Kind::kLiar,
              .hop = i,
              .reason =
                  fmt::format("its rows are off by {:.3g} % of what its layers make", 100 * made)};
    }
  }
  if (!is_wrong(found.arrived)) return {};
  if (is_mixed) return {.kind = Kind::kUnknown};
  return {.kind = Kind::kLiar,
          .hop = found.hops.size() - 1,
          .reason = "it says that it sent other rows than came from it"};
}

}  // namespace atl::chain
