// A chain generator's texts: what their askers want, which begin as others do, what is left of
// them.
#include <algorithm>
#include <utility>

#include "atoll/serve/chain_generator.h"

namespace atl::serve {
namespace {

constexpr int64_t kUsualAnswer = 128;  // Tokens, where nobody knows.
constexpr double kLongestWait = 1e6;   // Seconds.

}  // namespace

/// Seconds that are no time to wait for count as ever.
std::optional<Duration> ChainGenerator::round_after(const Sequence& sequence) const {
  if (!options_.may_round) return std::nullopt;
  const auto wanted = sequence.round_after() ? sequence.round_after() : options_.round_after;
  if (!wanted || *wanted > kLongestWait) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*wanted));
}

chain::Conductor::Text ChainGenerator::text_of(const GuessedText& text) const {
  const uint64_t adapter = text.sequence().adapter();
  return {.num_tokens = text.length(),
          .num_guessed = text.num_guesses(),
          .wanted_from = text.sequence().wanted_from(),
          .num_to_come = text.sequence().wants_logits() ? kUsualAnswer : 1,
          .may_skip = text.sequence().may_skip(),
          .round_after = round_after(text.sequence()),
          .adapter = adapter == 0 ? 0 : chain::kFirstAdapter + adapter - 1};
}

void ChainGenerator::take_news(Time now) {
  Arrived arrived;
  std::set<Id> cancelled;
  std::set<uint64_t> purged;
  std::string end;
  {
    const MutexLock lock(mutex_);
    end = take_end();
    arrived = take_arrived();
    cancelled = take_cancelled();
    purged = take_purged();
  }
  for (const Id id : cancelled) rest(id);
  for (const uint64_t tenant : purged) purge_kept_of(tenant);
  for (auto& sequence : arrived) {
    const Id id = sequence->id();
    counts_.prompt_tokens += std::ssize(sequence->tokens());
    const auto [other, num_shared] = longest_shared(*sequence);
    if (draft_ && sequence->wants_logits()) to_guess_.insert(id);
    Reading reading{.text = GuessedText(std::move(sequence)), .arrivals = {}};
    auto text = text_of(readings_.emplace(id, std::move(reading)).first->second.text);
    text.shares_with = other;
    text.num_shared = num_shared;
    conductor_.add(id, text, now);
  }
  if (!end.empty()) refuse_all(end);
}

/// The text, under way or kept, that begins with most of this one, and with how much of it.
std::pair<ChainGenerator::Id, int64_t> ChainGenerator::longest_shared(
    const Sequence& sequence) const {
  std::pair<Id, int64_t> best{0, 0};
  if (!sequence.may_skip()) return best;
  const std::vector<int64_t>& tokens = sequence.tokens();
  const auto look = [&](Id id, uint64_t tenant, uint64_t adapter,
                        const std::vector<int64_t>& others) {
    if (tenant != sequence.tenant() || adapter != sequence.adapter()) return;
    const auto same = std::ranges::mismatch(tokens, others).in1;
    const int64_t num_shared = std::min<int64_t>(same - tokens.begin(), std::ssize(tokens) - 1);
    if (num_shared >= chain::Conductor::kLeastShared && num_shared > best.second)
      best = {id, num_shared};
  };
  for (const auto& [id, kept] : resting_) look(id, kept.tenant, kept.adapter, kept.tokens);
  for (const auto& [id, reading] : readings_) {
    const Sequence& other = reading.text.sequence();
    if (!reading.is_private) look(id, other.tenant(), other.adapter(), other.tokens());
  }
  return best;
}

/// Servers that are not there now keep theirs until they need the room.
void ChainGenerator::purge_kept_of(uint64_t tenant) {
  for (const auto& [id, kept] : resting_) {
    if (kept.tenant == tenant) conductor_.forget(id);
  }
  for (auto& [id, reading] : readings_) {
    if (reading.text.sequence().tenant() != tenant) continue;
    reading.is_private = true;
    conductor_.forget(id);
  }
  if (draft_) draft_->purge(tenant);
  for (const kv::ChunkNames& names : chunk_names_) {
    for (const auto& [address, lines] : servers_) {
      if (lines.control_greeted) lines_.send(lines.control, chain::Purge{names.group_of(tenant)});
    }
  }
}

void ChainGenerator::let_go(Id id) {
  conductor_.remove(id);
  put_away(id, 0);
}

/// It is over, and good: others may begin as it does.
void ChainGenerator::rest(Id id) { put_away(id, conductor_.rest(id, clock_.now())); }

void ChainGenerator::put_away(Id id, int64_t num_kept) {
  to_guess_.erase(id);
  if (draft_) draft_->forget(id);
  const auto reading = readings_.extract(id);
  if (reading.empty()) return;
  const Sequence& sequence = reading.mapped().text.sequence();
  if (num_kept > 0) {
    resting_[id] = {.tenant = sequence.tenant(),
                    .adapter = sequence.adapter(),
                    .tokens = {sequence.tokens().begin(), sequence.tokens().begin() + num_kept}};
  }
  over_[id] = {.tenant = sequence.tenant(),
               .adapter = sequence.adapter(),
               .tokens = sequence.tokens(),
               .arrivals = std::move(reading.mapped().arrivals)};
}

}  // namespace atl::serve
