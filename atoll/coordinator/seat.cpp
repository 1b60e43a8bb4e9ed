#include "atoll/coordinator/seat.h"

#include "atoll/swarm/rules.h"

namespace atl::swarm {

Seat::Seat(State state, std::optional<Connection> connection, SuspicionOptions suspicion, Time now)
    : state_(state),
      connection_(connection),
      suspicion_(suspicion, now),
      heard_(now),
      away_since_(now) {}

bool Seat::hear(Time now) {
  suspicion_.heard(now);
  heard_ = now;
  if (state_ != State::kAway) return false;
  state_ = State::kBehind;
  return true;
}

void Seat::forgive(Time now) {
  suspicion_.forgive(now);
  trained_at_ = now;
}

bool Seat::is_silent(Time now) const {
  const bool is_expected = state_ == State::kActive || state_ == State::kBehind;
  return is_expected && now >= suspicion_.away_at();
}

void Seat::take_part(int64_t first_round, Time now) {
  state_ = State::kActive;
  first_round_ = first_round;
  trained_at_ = now;
}

void Seat::put_away(const std::string& why, Time now) {
  state_ = State::kAway;
  away_since_ = now;
  reason_ = why;
}

void Seat::leave(Time now) {
  state_ = State::kLeaving;
  away_since_ = now;
}

void Seat::come_back(int64_t first_round, Time now) {
  suspicion_.heard(now);
  trained_at_ = now;
  const bool goes_on = state_ == State::kReturning && first_round >= 0;
  state_ = goes_on ? State::kActive : State::kBehind;
  is_new_ = first_round < 0;
  first_round_ = std::max<int64_t>(first_round, 0);
}

void Seat::come_back_whole(uint64_t num_commits, Time now) {
  suspicion_.heard(now);
  heard_ = now;
  take_part(0, now);
  is_new_ = false;
  progress_ = {};
  caught_up_ = num_commits;
}

void Seat::report(const Heartbeat& heartbeat, Time now) {
  const bool computes_again = heartbeat.step != progress_.step;
  if (heartbeat.num_trained > num_trained_ || computes_again) trained_at_ = now;
  progress_ = heartbeat;
  note_trained(heartbeat.num_trained);
  note_caught_up(heartbeat.caught_up);
}

IslandStatus Seat::status(const Peer& peer, Time now) const {
  IslandStatus status{.name = peer.name,
                      .number = peer.number,
                      .address = printable(peer.address),
                      .step = progress_.step,
                      .left_out = num_left_out_,
                      .heard_s = seconds(now - heard_)};
  if (fault_of_address_ && connection_) status.unreachable = printable(*fault_of_address_);
  switch (state_) {
    case State::kBehind:
      status.state = IslandState::kFetching;
      break;
    case State::kActive:
      status.state = IslandState::kTraining;
      break;
    case State::kLeaving:
    case State::kLeft:
      status.state = IslandState::kLeft;
      break;
    case State::kReturning:
      status.state = IslandState::kAway;
      status.reason = "it has not come back to this coordinator yet";
      break;
    case State::kAway:
      status.state = IslandState::kAway;
      status.reason = printable(reason_);
      break;
  }
  if (progress_.step > 0) {
    status.loss = progress_.loss;
    status.tokens_per_s = progress_.tokens_per_s;
  }
  return status;
}

}  // namespace atl::swarm
