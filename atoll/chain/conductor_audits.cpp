// Which texts a conductor has audited (audit.h), and what becomes of liars.
//
// Of the tokens that pass a server a part is owed to audits. Where a stretch is owed, the text that
// has just gone on is audited, or one that ends: its servers are asked what they have seen when
// they have made it, and can change nothing any more. Mostly that is its beginning, now and then
// (as 1 / depth) much of it: who lies from a certain token on is found as well.
#include <algorithm>
#include <utility>

#include "atoll/base/random.h"
#include "atoll/chain/conductor.h"

namespace atl::chain {
namespace {

constexpr double kMostOwed = 1024;  // What cannot be recomputed in time never is.
constexpr int64_t kDeepest = 1024;
constexpr int64_t kMostUnseen = 8192;
constexpr size_t kMostAudits = 16;
constexpr Duration kTestimonyPatience = std::chrono::seconds(10);
/// Who has served on and said nothing so often has something to hide.
constexpr int kMostEvasions = 8;
constexpr size_t kContradictions = 2;

}  // namespace

void Conductor::count_served(const Session& session, int64_t num_tokens) {
  for (const Hop& hop : session.hops) {
    const auto server = servers_.find(hop.address);
    if (server == servers_.end()) continue;
    const double owed = static_cast<double>(num_tokens) * options_.audit_fraction;
    server->second.to_audit = std::min(server->second.to_audit + owed, kMostOwed);
  }
}

/// Of a text that began rounded it has to be known how.
bool Conductor::may_audit(const Session& session) const {
  return options_.audit_fraction > 0 && !session.hops.empty() && !session.is_broken &&
         (session.num_rounded == 0 || !session.levels.empty());
}

void Conductor::consider_audit(Key key, const Session& session, int64_t least, Time now) {
  const int64_t num_sure =
      std::min(session.num_done, session.text.num_tokens - session.text.num_guessed);
  const bool is_possible = may_audit(session) && num_sure >= least && audits_.size() < kMostAudits;
  if (!is_possible) return;
  // Who gives what it has had slowly holds up others: one of these at a time.
  const bool is_rounded = session.num_rounded > 0;
  if (is_rounded &&
      std::ranges::any_of(audits_, [](const auto& entry) { return entry.second.is_rounded; })) {
    return;
  }
  Audit audit{.session = session.number, .hops = session.hops, .servers = {}, .said = {}};
  double owed = 0;
  int64_t unseen = 0;  // The servers know nothing of what was restored.
  for (const Hop& hop : session.hops) {
    unseen = std::max(unseen, hop.restored);
    const auto server = servers_.find(hop.address);
    if (server == servers_.end() || !is_usable(server->second, now)) return;
    owed = std::max(owed, server->second.to_audit);
    audit.servers.push_back(server->second.lease.name);
  }
  // What it costs is what is recomputed, or fetched: such audits are the rarer the more was
  // restored.
  const int64_t least_end = unseen + kAuditedAtLeast;
  if (owed < std::min(static_cast<double>(least_end), kMostOwed)) return;
  if (unseen > 0 && least_end > std::min(num_sure, kMostUnseen)) return;
  const double depth = owed / (1 - random_uniform(options_.audit_seed, 0, ++last_audit_));
  audit.end =
      std::min(num_sure, unseen + std::min(kDeepest, static_cast<int64_t>(std::min(depth, 1e9))));
  audit.unseen = unseen;
  audit.is_mixed = session.is_mixed;
  audit.is_rounded = is_rounded;
  audit.since = now;
  audit.said.resize(audit.hops.size());
  actions_.emplace_back(SetAside{.key = key,
                                 .session = session.number,
                                 .number = last_audit_,
                                 .end = audit.end,
                                 .num_rounded = is_rounded ? unseen : 0,
                                 .levels = session.levels});
  for (const Hop& hop : session.hops) {
    servers_.at(hop.address).to_audit -= static_cast<double>(audit.end);
    actions_.emplace_back(
        Say{hop.address, Testify{.session = {.gateway = options_.gateway, .number = session.number},
                                 .audit = last_audit_,
                                 .end = audit.end}});
  }
  audits_[last_audit_] = std::move(audit);
}

/// What was owed is owed again.
void Conductor::drop_audit(uint64_t number) {
  const auto audit = audits_.extract(number);
  if (audit.empty()) return;
  for (const Hop& hop : audit.mapped().hops) {
    const auto server = servers_.find(hop.address);
    if (server != servers_.end()) {
      server->second.to_audit += static_cast<double>(audit.mapped().end);
    }
  }
  actions_.emplace_back(Drop{number});
}

void Conductor::drop_audits_of(uint64_t session) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, audit] : audits_) {
    if (audit.session == session) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) drop_audit(number);
}

void Conductor::begin_anew_of(uint64_t session, Time now) {
  const auto key = keys_.find(session);
  if (key == keys_.end()) {
    const auto rest = find_rest(session);
    if (rest != resting_.end()) end_rest(rest->first);
    return;
  }
  sessions_.at(key->second).may_restore = false;  // What is kept may be what is wrong.
  begin_anew(sessions_.at(key->second), now);
  find_chains(now);
}

/// A server does not say what it has seen. It may have lost it; or not want to.
void Conductor::evade(uint64_t number, size_t hop, Time now) {
  const Audit audit = audits_.at(number);
  drop_audits_of(audit.session);
  const auto server = servers_.find(audit.hops[hop].address);
  if (server == servers_.end() || ++server->second.num_evasions < kMostEvasions) return;
  convict(audit.hops[hop].address, audit.servers[hop], "it does not say what has passed through it",
          now);
}

/// It has not got the session any more, and says so before it is asked again.
void Conductor::excuse(const std::string& address, uint64_t session, Time now) {
  for (const auto& [number, audit] : audits_) {
    const auto hop = std::ranges::find(audit.hops, address, &Hop::address);
    const auto index = static_cast<size_t>(hop - audit.hops.begin());
    if (audit.session != session || index >= audit.said.size()) continue;
    if (!audit.said[index].received.empty()) continue;
    return evade(number, index, now);
  }
}

void Conductor::testimony(const std::string& address, const Testimony& message, Time now) {
  const auto found = audits_.find(message.audit);
  if (message.session.gateway != options_.gateway || found == audits_.end()) return;
  Audit& audit = found->second;
  const auto hop = std::ranges::find(audit.hops, address, &Hop::address);
  const auto index = static_cast<size_t>(hop - audit.hops.begin());
  // Not asked, or heard already.
  if (index >= audit.said.size() || !audit.said[index].received.empty()) return;
  const bool is_whole =
      std::ssize(message.received) == audit.end && std::ssize(message.made) == audit.end;
  if (!is_whole) {
    const uint64_t session = audit.session;
    evade(found->first, index, now);
    return begin_anew_of(session, now);  // Whatever it has lost.
  }
  if (const auto server = servers_.find(address); server != servers_.end()) {
    server->second.num_evasions = 0;
  }
  audit.said[index] = message;
  if (!audit.is_heard()) return;
  actions_.emplace_back(
      Recompute{.number = found->first, .hops = audit.hops, .said = std::exchange(audit.said, {})});
}

/// What a server has had is not to be had from it, or not in time: it is not asked for again.
void Conductor::forget_levels(uint64_t audit) {
  const auto found = audits_.find(audit);
  if (found == audits_.end()) return;
  const auto key = keys_.find(found->second.session);
  if (key != keys_.end()) sessions_.at(key->second).levels.clear();
}

void Conductor::recomputed(const Recomputed& found, Time now) {
  if (found.hops.empty()) {
    forget_levels(found.number);
    return drop_audit(found.number);
  }
  const auto audit = audits_.extract(found.number);
  if (audit.empty()) return;
  num_audited_ += audit.mapped().end - audit.mapped().unseen;
  const Verdict verdict = judge(found, audit.mapped().is_mixed);
  switch (verdict.kind) {
    case Verdict::Kind::kGood:
      return;
    case Verdict::Kind::kLiar:
      convict(audit.mapped().hops[verdict.hop].address, audit.mapped().servers[verdict.hop],
              verdict.reason, now);
      return;
    case Verdict::Kind::kContradiction:
      return contradict(audit.mapped(), verdict.hop, now);
    case Verdict::Kind::kUnknown:
      forget_kept();
      begin_anew_of(audit.mapped().session, now);
  }
}

/// Texts that go from the one straight to the other begin anew, by other chains where there are
/// some.
void Conductor::contradict(const Audit& audit, size_t hop, Time now) {
  const std::string from = audit.hops[hop].address;
  const std::string to = audit.hops[hop + 1].address;
  cut_links_[{from, to}] = Time::max();
  end_rests_of(from);
  for (auto& [key, session] : sessions_) {
    const auto is_link = [&](const Hop& a, const Hop& b) {
      return a.address == from && b.address == to;
    };
    if (std::ranges::adjacent_find(session.hops, is_link) != session.hops.end()) {
      session.may_restore = false;
      begin_anew(session, now);
    }
  }
  for (const auto& [one, other] : {std::pair(hop, hop + 1), std::pair(hop + 1, hop)}) {
    auto& others = contradicted_[audit.servers[one]];
    others.insert(audit.servers[other]);
    if (others.size() < kContradictions) continue;
    convict(audit.hops[one].address, audit.servers[one],
            "its word about rows is against that of several others", now);
  }
  find_chains(now);
}

/// Keys and values that were made of its rows are with all servers behind it: what it has had a
/// part in begins anew, also where it has been replaced before.
void Conductor::convict(const std::string& address, const std::string& name,
                        const std::string& reason, Time now) {
  if (!liars_.emplace(name, reason).second) return;
  const auto server = servers_.find(address);
  if (server != servers_.end()) server->second.is_listed = false;
  end_rests_of(address, true);
  for (auto& [key, session] : sessions_) {
    const bool has_it =
        std::ranges::find(session.hops, address, &Hop::address) != session.hops.end();
    if (!has_it && !session.is_mixed) continue;
    session.may_restore = false;
    begin_anew(session, now);
  }
  forget_kept();
  actions_.emplace_back(Accuse{.address = address, .server = name, .reason = reason});
  find_chains(now);
}

/// Some of it may have been made, or kept, by a liar: nothing that was kept before is asked for any
/// more.
void Conductor::forget_kept() {
  if (options_.kept_tokens == 0) return;
  for (auto& [key, session] : sessions_) {
    session.kept_by.clear();
    session.holders.clear();
    session.levels.clear();
  }
  for (auto& [key, rest] : resting_) rest.kept_by.clear();
  actions_.emplace_back(ForgetKept{});
}

void Conductor::watch_audits(Time now) {
  std::vector<uint64_t> void_ones;
  std::vector<std::pair<uint64_t, size_t>> silent;
  for (auto& [number, audit] : audits_) {
    for (size_t i = 0; i < audit.said.size(); ++i) {
      if (!audit.said[i].received.empty()) continue;
      const auto server = servers_.find(audit.hops[i].address);
      const bool is_gone = server == servers_.end() || !server->second.is_ready ||
                           server->second.greeted > audit.since;
      if (is_gone) {
        void_ones.push_back(number);
        break;
      }
      if (server->second.hangs) audit.since = now;
      if (now - audit.since > kTestimonyPatience) {
        silent.emplace_back(number, i);
        break;
      }
    }
  }
  for (const uint64_t number : void_ones) drop_audit(number);
  for (const auto& [number, hop] : silent) {
    if (!audits_.contains(number)) continue;
    const uint64_t session = audits_.at(number).session;
    evade(number, hop, now);
    begin_anew_of(session, now);
  }
}

}  // namespace atl::chain
