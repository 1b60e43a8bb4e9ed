// Keys and values that are kept, as a conductor uses them: servers are told which chunks of a text
// to keep, and with whom; a text that begins as one before did, and a server that takes a place,
// begin with what is found of it where that is quicker than to read it.
#include <algorithm>
#include <utility>

#include "atoll/chain/conductor.h"

namespace atl::chain {
namespace {

constexpr size_t kMostHolders = 4;
/// To ask costs a round trip: texts that are read in as many of them are not worth it.
constexpr double kRoundTrips = 4;
constexpr Duration kGrace = std::chrono::milliseconds(500);
constexpr double kLongest = 60;  // Seconds.
constexpr int64_t kSlownessTokens = 512;
constexpr int64_t kLeastNoted = 16;  // Tokens: fewer say little of many.
constexpr int64_t kMostNoted = 1 << 20;
constexpr double kSlowest = 100;  // Times what servers say, which is the quickest.
constexpr double kNewest = 0.3;   // Its share.

int32_t whole_ms(double of_seconds) {
  return static_cast<int32_t>(std::min(of_seconds, 1e6) * 1e3);
}

Duration patience(double of_seconds) {
  return std::chrono::duration_cast<Duration>(
             std::chrono::duration<double>(std::min(of_seconds, kLongest))) +
         kGrace;
}

}  // namespace

int64_t Conductor::whole_chunks(int64_t num_positions) const {
  return options_.kept_tokens == 0 ? 0 : num_positions - num_positions % options_.kept_tokens;
}

/// Where a copy of what that hop has is likeliest to be of use: with who would take its place.
std::string Conductor::neighbour_for(const Session& session, size_t hop, Time now) const {
  const Server* best = nullptr;
  for (const Candidate& other : candidates(0, now)) {
    const Server& server = servers_.at(other.address);
    const bool is_new =
        std::ranges::find(session.hops, other.address, &Hop::address) == session.hops.end();
    if (!is_new || !other.layers.holds(session.hops[hop].layers)) continue;
    if (best == nullptr || server.num_sessions < best->num_sessions) best = &server;
  }
  if (best != nullptr) return best->lease.address;
  if (session.hops.size() < 2) return {};
  return session.hops[hop + 1 < session.hops.size() ? hop + 1 : hop - 1].address;
}

void Conductor::keep_chunks(Key key, Session& session, Time now) {
  const bool is_whole = !session.hops.empty() && !session.is_broken && !session.restoring;
  if (options_.kept_tokens == 0 || !is_whole || !session.is_for_others()) return;
  const int64_t num_sure =
      std::min(session.num_done, session.text.num_tokens - session.text.num_guessed);
  const auto end = static_cast<uint32_t>(num_sure / options_.kept_tokens);
  for (size_t i = 0; i < session.hops.size(); ++i) {
    const Hop& hop = session.hops[i];
    KeptBy& kept = session.kept_by[hop.address];
    // What was restored it has kept already.
    const auto first =
        std::max(kept.num_chunks, static_cast<uint32_t>(hop.restored / options_.kept_tokens));
    if (first >= end) continue;
    if (kept.neighbour.empty() || !is_usable(kept.neighbour, now)) {
      kept.neighbour = neighbour_for(session, i, now);
    }
    kept.num_chunks = end;
    actions_.emplace_back(
        KeepChunks{.key = key,
                   .address = hop.address,
                   .message = {.session = {.gateway = options_.gateway, .number = session.number},
                               .group = {},
                               .first = first,
                               .chunks = {},
                               .neighbour = kept.neighbour},
                   .end = end});
  }
}

/// What servers say is of short texts and of servers without others; what is far behind in a text
/// attends to more, and is read more slowly.
double Conductor::seconds_to_read(const Session& session, const std::pair<size_t, size_t>& run,
                                  int64_t num_positions) const {
  double slowness = 0;
  for (int64_t begin = 0; begin < num_positions; begin += kSlownessTokens) {
    const auto part = static_cast<size_t>(begin / kSlownessTokens);
    const double known = slowness_.empty() ? 1 : slowness_[std::min(part, slowness_.size() - 1)];
    slowness += known * static_cast<double>(std::min(kSlownessTokens, num_positions - begin));
  }
  return num_positions <= 0 ? 0
                            : said_to_read(session, run, num_positions) * slowness /
                                  static_cast<double>(num_positions);
}

/// From its last output to one before `end`.
void Conductor::note_reading(const Session& session, int64_t end, Time now) {
  // Before the first output there was more to wait for.
  const int64_t first =
      session.shares_with == 0 ? session.hops.front().restored : session.text.num_shared;
  if (session.num_done <= first) return;
  const int64_t count = end - session.num_done;
  const double said = said_to_read(session, {0, session.hops.size()}, count);
  if (count < kLeastNoted || said <= 0 || end > kMostNoted) return;
  const double ratio = std::clamp(seconds(now - session.since) / said, 1.0, kSlowest);
  const auto part = static_cast<size_t>(session.num_done / kSlownessTokens);
  while (slowness_.size() <= part)
    slowness_.push_back(slowness_.empty() ? ratio : slowness_.back());
  slowness_[part] += kNewest * (ratio - slowness_[part]);
}

/// Its servers side by side, each as soon as the one before it has something for it.
double Conductor::said_to_read(const Session& session, const std::pair<size_t, size_t>& run,
                               int64_t num_positions) const {
  double longest = 0;
  for (size_t i = run.first; i < run.second; ++i) {
    const auto server = servers_.find(session.hops[i].address);
    if (server == servers_.end() || server->second.lease.token_layers_per_s <= 0) continue;
    longest = std::max(longest, static_cast<double>(num_positions * session.hops[i].layers.size()) /
                                    server->second.lease.token_layers_per_s);
  }
  return longest;
}

/// By what the one who has it sends to others; where that is unknown, or is the server itself,
/// there is nothing that speaks against it.
double Conductor::seconds_to_restore(const Hop& hop, const std::vector<std::string>& holders,
                                     int64_t num_positions) const {
  double shortest = -1;
  for (const std::string& holder : holders) {
    if (holder == hop.address) return 0;
    const auto server = servers_.find(holder);
    if (server == servers_.end() || !server->second.is_ready) continue;
    const double speed = server->second.lease.neighbour_layers_per_s;
    if (speed <= 0) return 0;
    const double took = static_cast<double>(num_positions * hop.layers.size()) / speed;
    if (shortest < 0 || took < shortest) shortest = took;
  }
  return shortest < 0 ? kLongest : shortest;
}

Restore& Conductor::ask_for(Key key, Session& session, size_t hop, int64_t num_positions,
                            std::vector<std::string> holders, double to_read) {
  const Hop& asked = session.hops[hop];
  session.restoring->found[asked.address] = std::nullopt;
  std::erase(holders, asked.address);
  actions_.emplace_back(
      RestoreChunks{.key = key,
                    .address = asked.address,
                    .message = {.session = {.gateway = options_.gateway, .number = session.number},
                                .epoch = session.epoch,
                                .layers = asked.layers,
                                .group = {},
                                .chunks = {},
                                .holders = std::move(holders),
                                .read_ms = to_read > 0 ? whole_ms(to_read) : -1},
                    .end = static_cast<uint32_t>(num_positions / options_.kept_tokens)});
  return std::get<RestoreChunks>(actions_.back()).message;
}

/// False: it is to be read.
bool Conductor::restore_beginning(Key key, Session& session, Time now) {
  const bool may = session.may_restore && session.text.may_skip && session.shares_with == 0;
  if (!may) return false;
  const int64_t most =
      whole_chunks(std::min(session.text.wanted_from, session.text.num_tokens - 1));
  const std::pair<size_t, size_t> all{0, session.hops.size()};
  const double to_read = seconds_to_read(session, all, most);
  double round_trip = 0;
  for (const Hop& hop : session.hops) {
    const auto server = servers_.find(hop.address);
    if (server == servers_.end()) return false;
    round_trip = std::max(round_trip, seconds(server->second.watch.round_trip()));
  }
  if (most <= 0 || to_read <= kRoundTrips * round_trip) return false;
  // Rounded only what would take longer exactly, by either way; and of nothing that was answered.
  const bool may_round = session.text.round_after && session.most_done == 0 &&
                         to_read > seconds(*session.text.round_after);
  session.restoring = Restoring{.begins = true,
                                .may_round = may_round,
                                .found = {},
                                .runs = {all},
                                .resenders = {},
                                .until = now + patience(to_read)};
  for (size_t i = 0; i < session.hops.size(); ++i) {
    std::vector<std::string> holders = session.holders;
    for (const Candidate& other : candidates(0, now)) {
      const Span& layers = other.layers;
      const Span& own = session.hops[i].layers;
      const bool overlaps = layers.begin < own.end && own.begin < layers.end;
      if (overlaps && std::ranges::find(holders, other.address) == holders.end()) {
        holders.push_back(other.address);
      }
    }
    // Where nobody could take a place copies went to these (neighbour_for).
    std::vector<std::string> neighbours;
    for (const size_t other : {i + 1, i - 1}) {
      if (other < session.hops.size()) neighbours.push_back(session.hops[other].address);
    }
    std::erase_if(holders, [&](const std::string& holder) {
      return holder == session.hops[i].address ||
             std::ranges::find(neighbours, holder) != neighbours.end();
    });
    holders.resize(std::min(holders.size(), kMostHolders - neighbours.size()));
    holders.insert(holders.end(), neighbours.begin(), neighbours.end());
    Restore& asked = ask_for(key, session, i, most, std::move(holders), to_read);
    if (may_round) {
      asked.round_after_ms = whole_ms(seconds(*session.text.round_after));
    }
  }
  return true;
}

/// Where that is not quicker, what they lack is sent to them again at once, and read.
void Conductor::restore_places(Key key, Session& session,
                               std::vector<std::pair<size_t, size_t>> runs,
                               std::vector<size_t> resenders, Time now) {
  const int64_t most =
      whole_chunks(std::min(session.num_done, session.text.num_tokens - session.text.num_guessed));
  std::vector<std::string> holders = session.holders;
  if (holders.size() > kMostHolders) holders.resize(kMostHolders);
  double longest = 0;
  std::vector<std::pair<size_t, double>> asked;  // Hops, and what it takes to read what they lack.
  for (const auto& run : runs) {
    if (!session.may_restore || most <= 0) break;
    const double to_read = seconds_to_read(session, run, most);
    double to_restore = 0;
    for (size_t i = run.first; i < run.second; ++i) {
      to_restore = std::max(to_restore, seconds_to_restore(session.hops[i], holders, most));
    }
    if (to_restore >= to_read) continue;
    longest = std::max(longest, to_read);
    for (size_t i = run.first; i < run.second; ++i) asked.emplace_back(i, to_read);
  }
  session.restoring = Restoring{.begins = false,
                                .found = {},
                                .runs = std::move(runs),
                                .resenders = std::move(resenders),
                                .until = now + patience(longest)};
  for (const auto& [hop, to_read] : asked) ask_for(key, session, hop, most, holders, to_read);
  if (asked.empty()) end_restoring(key, session, now);
}

void Conductor::restored(const std::string& address, const Restored& message, Time now) {
  const auto session = find(message.session);
  if (session == sessions_.end() || !session->second.restoring) return;
  if (message.epoch != session->second.epoch) return;
  auto& found = session->second.restoring->found;
  const auto asked = found.find(address);
  if (asked == found.end()) return;
  const Hop& hop = *std::ranges::find(session->second.hops, address, &Hop::address);
  const bool is_rounded =
      std::ranges::any_of(message.levels, [](uint8_t level) { return level > 0; });
  const bool is_whole =
      message.end % options_.kept_tokens == 0 &&
      std::ssize(message.levels) == message.end / options_.kept_tokens * hop.layers.size();
  if (!is_whole || (is_rounded && !session->second.restoring->may_round)) {
    return blame(address, now);
  }
  asked->second = message;
  const bool is_done =
      std::ranges::all_of(found, [](const auto& each) { return each.second.has_value(); });
  if (is_done) end_restoring(session->first, session->second, now);
}

/// Of all that it goes on with; and how much of that any server has rounded.
void Conductor::note_levels(Session& session, const Restoring& done) const {
  const int64_t num_chunks = session.num_fed / options_.kept_tokens;
  if (num_chunks == 0) return;
  std::vector<uint8_t> is_rounded(static_cast<size_t>(num_chunks));
  for (const Hop& hop : session.hops) {
    const auto num_layers = static_cast<size_t>(hop.layers.size());
    std::vector<uint8_t> levels = done.found.at(hop.address)->levels;
    levels.resize(is_rounded.size() * num_layers);
    for (size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] > 0) is_rounded[i / num_layers] = 1;
    }
    session.levels.push_back(std::move(levels));
  }
  session.num_rounded = std::ranges::count(is_rounded, 1) * options_.kept_tokens;
  if (session.num_rounded == 0 || !options_.audits_rounded) session.levels.clear();
}

/// It goes on with what was found. Who has not answered has nothing.
void Conductor::end_restoring(Key key, Session& session, Time now) {
  const Restoring done = *std::exchange(session.restoring, {});
  bool feeds_anew = false;
  for (const auto& [begin, end] : done.runs) {
    int64_t least = done.begins ? std::min(session.text.wanted_from, session.text.num_tokens - 1)
                                : std::min(session.num_done,
                                           session.text.num_tokens - session.text.num_guessed);
    for (size_t i = begin; i < end; ++i) {
      const auto found = done.found.find(session.hops[i].address);
      const bool is_known = found != done.found.end() && found->second;
      least = std::min(least, is_known ? std::max<int64_t>(found->second->end, 0) : 0);
    }
    for (size_t i = begin; i < end; ++i) session.hops[i].restored = least;
    feeds_anew = feeds_anew || begin == 0;
    if (least > 0) session.is_mixed = true;
  }
  session.since = now;
  resend(session, done.resenders);
  if (feeds_anew) {
    session.num_fed = session.hops.front().restored;
    if (done.begins) {
      session.num_done = session.num_fed;
      note_levels(session, done);
    }
    // Both are read anew there, and what they share once.
    const auto other = sessions_.find(session.text.shares_with);
    const bool shares =
        other != sessions_.end() && session.num_fed == 0 && other->second.is_for_others();
    session.shares_with = shares && !done.begins ? other->second.number : 0;
  }
  feed(key, session);
}

void Conductor::watch_restores(Time now) {
  for (auto& [key, session] : sessions_) {
    if (session.restoring && now >= session.restoring->until) end_restoring(key, session, now);
  }
}

}  // namespace atl::chain
