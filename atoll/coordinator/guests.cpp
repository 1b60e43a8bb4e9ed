#include "atoll/coordinator/guests.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "atoll/swarm/rules.h"

namespace atl::swarm {

bool Guest::holds_training() const {
  return ready && !ready->checkpoints.empty() && ready->checkpoints.rbegin()->first > 0;
}

bool Guests::has(const std::string& name) const {
  return std::ranges::any_of(guests_,
                             [&](const auto& entry) { return entry.second.hello.name == name; });
}

bool Guests::is_ready(const std::string& name) const {
  return std::ranges::any_of(guests_, [&](const auto& entry) {
    return entry.second.hello.name == name && entry.second.ready.has_value();
  });
}

int64_t Guests::num_ready() const { return std::ssize(ready()); }

std::vector<Guests::Connection> Guests::ready() const {
  std::vector<Connection> ready;
  for (const auto& [connection, guest] : guests_) {
    if (guest.ready) ready.push_back(connection);
  }
  return ready;
}

void Guests::come(Connection connection, const Hello& hello, Time now) {
  guests_[connection] = {.hello = hello, .heard = now};
}

std::string Guests::objection_to(Connection connection, const Ready& ready) const {
  if (guests_.at(connection).ready) return "it was ready twice";
  if (ready.checkpoints.empty()) return "checkpoints: it has no state to start from";
  if (facts_.empty()) return {};
  std::set<std::string> fields;
  for (const auto& [field, value] : facts_) fields.insert(field);
  for (const auto& [field, value] : ready.facts) fields.insert(field);
  for (const std::string& field : fields) {
    const auto theirs = facts_.find(field);
    const auto own = ready.facts.find(field);
    const std::string value = theirs == facts_.end() ? "none" : theirs->second;
    const std::string ours = own == ready.facts.end() ? "none" : own->second;
    if (value != ours) {
      return fmt::format("{}: the run has {}, this island {}", printable(field), printable(value),
                         printable(ours));
    }
  }
  return {};
}

void Guests::make_ready(Connection connection, const Ready& ready) {
  guests_.at(connection).ready = ready;
  if (facts_.empty()) facts_ = ready.facts;
}

Hello Guests::take(Connection connection) {
  return std::move(guests_.extract(connection).mapped().hello);
}

std::vector<Guests::Connection> Guests::silent(Time now, Duration patience) const {
  std::vector<Connection> silent;
  for (const auto& [connection, guest] : guests_) {
    if (now - guest.heard > patience) silent.push_back(connection);
  }
  return silent;
}

void Guests::forgive(Time now) {
  for (auto& [connection, guest] : guests_) guest.heard = now;
}

std::string Guests::newest_checkpoints() const {
  std::map<std::string, std::string> lines;  // By name.
  for (const auto& [connection, guest] : guests_) {
    if (!guest.ready) continue;
    const auto& [step, digest] = *guest.ready->checkpoints.rbegin();
    lines[guest.hello.name] =
        fmt::format("'{}' step {} ({})", guest.hello.name, step, printable(digest.substr(0, 12)));
  }
  std::string out;
  for (const auto& [name, line] : lines) out += (out.empty() ? "" : ", ") + line;
  return out;
}

}  // namespace atl::swarm
