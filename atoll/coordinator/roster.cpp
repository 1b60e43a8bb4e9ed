#include "atoll/coordinator/roster.h"

#include <algorithm>

namespace atl::swarm {

void Roster::restore(int32_t number, State state, Time now) {
  seats_.emplace(number, Seat(state, std::nullopt, suspicion_, now));
}

Seat& Roster::seat(int32_t number, Connection connection, Time now) {
  numbers_[connection] = number;
  return seats_.emplace(number, Seat(State::kBehind, connection, suspicion_, now)).first->second;
}

void Roster::vacate(int32_t number) {
  if (const auto connection = at(number).connection()) numbers_.erase(*connection);
  seats_.erase(number);
}

void Roster::clear() {
  seats_.clear();
  numbers_.clear();
}

void Roster::connect(int32_t number, Connection connection) {
  Seat& seat = at(number);
  if (const auto old = seat.connection()) numbers_.erase(*old);
  seat.connect(connection);
  numbers_[connection] = number;
}

std::optional<int32_t> Roster::disconnect(Connection connection) {
  const auto found = numbers_.find(connection);
  if (found == numbers_.end()) return std::nullopt;
  const int32_t number = found->second;
  numbers_.erase(found);
  at(number).disconnect();
  return number;
}

std::vector<int32_t> Roster::numbers() const {
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) numbers.push_back(number);
  return numbers;
}

std::vector<int32_t> Roster::in(State state) const {
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) {
    if (seat.state() == state) numbers.push_back(number);
  }
  return numbers;
}

int64_t Roster::num_in(State state) const {
  return std::ranges::count_if(seats_,
                               [&](const auto& entry) { return entry.second.state() == state; });
}

std::set<int32_t> Roster::live() const {
  std::set<int32_t> numbers;
  for (const auto& [number, seat] : seats_) {
    if (seat.is_live()) numbers.insert(numbers.end(), number);
  }
  return numbers;
}

int64_t Roster::num_live() const {
  return std::ranges::count_if(seats_, [](const auto& entry) { return entry.second.is_live(); });
}

std::vector<int32_t> Roster::expected(int64_t round) const {
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) {
    if (seat.is_live() && seat.first_round() <= round) numbers.push_back(number);
  }
  return numbers;
}

std::optional<int32_t> Roster::number_of(Connection connection) const {
  const auto found = numbers_.find(connection);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

std::vector<Roster::Connection> Roster::connections() const {
  std::vector<Connection> all;
  for (const auto& [connection, number] : numbers_) all.push_back(connection);
  return all;
}

void Roster::report(int32_t number, const Heartbeat& heartbeat, Time now) {
  Seat& seat = at(number);
  if (heartbeat.moved != seat.progress().moved) last_moved_ = now;
  seat.report(heartbeat, now);
}

void Roster::forgive(Time now) {
  for (auto& [number, seat] : seats_) seat.forgive(now);
}

}  // namespace atl::swarm
