#include "atoll/island/recorded_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/collective/exchange.h"
#include "atoll/run/events.h"

namespace atl::island {

using collective::Commit;
using collective::CommittedRound;
using collective::Contribution;

namespace {

/// Of what lies on a device nothing is known: it is not fetched for this.
uint64_t sum_of(const Contribution& contribution) {
  return xxh3(contribution.values.data(), contribution.values.size_bytes());
}

}  // namespace

void RecordedRounds::take_from_disk(std::span<const run::LoggedRound> rounds) {
  on_disk_.assign(rounds.begin(), rounds.end());
}

void RecordedRounds::go_on(bool is_member) {
  on_disk_.clear();
  begun_.clear();
  is_member_ = is_member;
  for (Contribution& contribution : std::exchange(held_back_, {})) forward(std::move(contribution));
}

void RecordedRounds::begin(Contribution contribution) {
  const int64_t round = contribution.round;
  if (!has_left()) return forward(std::move(contribution));
  if (std::ranges::find(on_disk_, round, &run::LoggedRound::round) == on_disk_.end()) {
    held_back_.push_back(std::move(contribution));
  } else {
    const auto sent = diary_.sent(round);
    begun_[round] = {.weight = contribution.weight,
                     .is_another = sent && *sent != sum_of(contribution)};
  }
}

void RecordedRounds::forward(Contribution contribution) {
  const int64_t round = contribution.round;
  const uint64_t sum = sum_of(contribution);
  if (is_member_ && diary_.sent(round).value_or(sum) != sum) {
    events_(run::RoundComputedOtherwise{round});
  }
  diary_.note_sent(round, sum);
  const auto missed = own_missed_.find(round);
  if (missed == own_missed_.end()) return others_.begin(std::move(contribution));
  missed->second.left_out = contribution.weight > 0 && missed->second.own_share == 0;
}

Result<Commit> RecordedRounds::wait(int64_t round) {
  if (has_left()) {
    const run::LoggedRound next = on_disk_.front();
    const auto begun = begun_.find(round);
    if (next.round != round || begun == begun_.end()) {
      return failure(fmt::format("round {} is not on disk, and round {} is", round, next.round));
    }
    on_disk_.pop_front();
    return read(next, begun->second);
  }
  if (const auto missed = own_missed_.extract(round); !missed.empty()) {
    return std::move(missed.mapped());
  }
  return others_.wait(round);
}

Result<Commit> RecordedRounds::read(const run::LoggedRound& logged, const Begun& begun) const {
  if (begun.is_another) {
    return failure(fmt::format(
        "what this island computes for round {} is not what it was (another processor?)",
        logged.round));
  }
  std::shared_ptr<const CommittedRound> record;
  try {
    record = std::make_shared<const CommittedRound>(run::read_round(logged.file));
  } catch (const InputError& error) {
    return failure(error.what());
  }
  const auto own = std::ranges::find(record->members, diary_.member_at(record->step));
  if (own == record->members.end()) {
    return failure(fmt::format("round {} was committed without this island", logged.round));
  }
  const auto rank = static_cast<size_t>(own - record->members.begin());
  return Commit{.round = record->round,
                .fragment = record->fragment,
                .step = record->step,
                .digest = record->digest,
                .left_out = begun.weight > 0 && record->weights[rank] == 0,
                .record = record,
                .missed = true,
                .own_share = collective::coefficients(record->weights)[rank]};
}

/// A round that has this island's part was begun here before, and is again at its own step: until
/// then all that was committed behind it waits.
std::optional<Commit> RecordedRounds::take_missed() {
  if (has_left()) return std::nullopt;
  while (auto commit = others_.take_missed()) {
    const int64_t round = commit->round;
    if (is_member_ && commit->included) {
      own_missed_.emplace(round, *std::move(commit));
    } else {
      missed_.push_back(*std::move(commit));
    }
  }
  if (missed_.empty() || !own_missed_.empty()) return std::nullopt;
  Commit next = std::move(missed_.front());
  missed_.pop_front();
  return next;
}

std::optional<int64_t> RecordedRounds::take_position() {
  return has_left() || !own_missed_.empty() ? std::nullopt : others_.take_position();
}

}  // namespace atl::island
