// An island that keeps the protocol until a round, and from then on breaks it in one way: for
// swarm_test.py. A true island but for what its frames pass through on their way out.
//
//   rogue-island HOST:PORT NAME FOLDER STORE HOW ROUND
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/process.h"
#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/island/island.h"
#include "atoll/swarm/wire.h"

namespace {

using atl::Bytes;
using atl::swarm::Message;
using atl::swarm::Part;

/// What becomes of a message on its way out; false: it is not sent.
using Misdeed = bool (*)(Message& message);

bool send_wrong_lengths(Message& message) {
  if (auto* part = std::get_if<Part>(&message)) part->total += 1;
  return true;
}

bool send_stale_terms(Message& message) {
  std::visit([](auto& any) { any.header.term -= std::min<uint64_t>(any.header.term, 1); }, message);
  return true;
}

/// All bits of a floating-point number set: not a number. What describes the encoding stays.
bool send_nan(Message& message) {
  auto* part = std::get_if<Part>(&message);
  const bool is_its_own = part != nullptr && part->kind == atl::swarm::PartKind::kContribution;
  if (is_its_own) {
    const auto middle = part->data.begin() + std::ssize(part->data) / 2;
    std::fill(middle, std::min(middle + 64, part->data.end()), std::byte{0xff});
  }
  return true;
}

/// Changes the whole values that are in a chunk of an FP32 contribution.
template <typename Change>
bool change_values(Message& message, Change change) {
  auto* part = std::get_if<Part>(&message);
  if (part == nullptr || part->kind != atl::swarm::PartKind::kContribution) return true;
  const size_t header = part->offset == 0 ? atl::codec::Codec::kHeaderBytes : 0;
  const size_t torn = part->offset == 0 ? 0 : (part->offset - atl::codec::Codec::kHeaderBytes) % 4;
  const size_t begin = header + (4 - torn) % 4;
  if (begin >= part->data.size()) return true;
  std::vector<float> values((part->data.size() - begin) / sizeof(float));
  std::memcpy(values.data(), part->data.data() + begin, values.size() * sizeof(float));
  change(values);
  std::memcpy(part->data.data() + begin, values.data(), values.size() * sizeof(float));
  return true;
}

bool send_flipped(Message& message) {
  return change_values(message, [](std::vector<float>& values) {
    for (float& value : values) value = -value;
  });
}

/// So many times as large as what it stands for.
bool send_noise_of(Message& message, double size) {
  static std::atomic<uint64_t> stream = 0;
  return change_values(message, [&](std::vector<float>& values) {
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * value;
    const double usual = std::sqrt(square / static_cast<double>(values.size()));
    const uint64_t own = ++stream;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(size * usual * atl::random_normal(1, own, i));
    }
  });
}

bool send_noise(Message& message) { return send_noise_of(message, 1); }

bool send_garbage(Message& message) { return send_noise_of(message, 100); }

bool send_no_parts(Message& message) { return !std::holds_alternative<Part>(message); }

bool send_no_begin(Message& message) { return !std::holds_alternative<atl::swarm::Begin>(message); }

bool send_nothing(Message& /*message*/) { return false; }

const std::map<std::string, Misdeed> kMisdeeds = {
    {"lengths", send_wrong_lengths}, {"terms", send_stale_terms}, {"nan", send_nan},
    {"no-parts", send_no_parts},     {"no-begin", send_no_begin}, {"nothing", send_nothing},
    {"flipped", send_flipped},       {"noise", send_noise},       {"garbage", send_garbage}};

class RogueTransport final : public atl::net::Transport {
 public:
  RogueTransport(std::unique_ptr<Transport> inner, Misdeed misdeed, int64_t first_round)
      : inner_(std::move(inner)), misdeed_(misdeed), first_round_(first_round) {}

  atl::Result<std::string> listen(const std::string& address) override {
    return inner_->listen(address);
  }
  atl::net::ConnectionId connect(const std::string& address, atl::net::Plane plane) override {
    return inner_->connect(address, plane);
  }
  atl::net::ConnectionId meet(const atl::net::Meeting& meeting, atl::net::Plane plane) override {
    return inner_->meet(meeting, plane);
  }
  atl::net::Sent send(atl::net::ConnectionId connection, Bytes frame) override {
    Message message = atl::swarm::decode(frame);
    const auto* begin = std::get_if<atl::swarm::Begin>(&message);
    if (begin != nullptr && begin->header.round >= first_round_) has_begun_ = true;
    if (!has_begun_) return inner_->send(connection, std::move(frame));
    if (!misdeed_(message)) return atl::net::Sent::kAccepted;
    return inner_->send(connection, atl::swarm::encode(message));
  }
  atl::net::Sent send_shared(atl::net::ConnectionId connection,
                             atl::net::SharedFrame frame) override {
    return send(connection, frame.joined());
  }
  void close(atl::net::ConnectionId connection) override { inner_->close(connection); }
  atl::net::Traffic traffic() const override { return inner_->traffic(); }
  /// Who is slow owns nothing of a round: what it contributes must travel.
  atl::net::LinkEstimate estimate(atl::net::ConnectionId connection) const override {
    auto estimate = inner_->estimate(connection);
    estimate.bytes_per_second = std::min(estimate.bytes_per_second, 1.0);
    return estimate;
  }

 private:
  std::unique_ptr<Transport> inner_;
  Misdeed misdeed_;
  int64_t first_round_;
  std::atomic<bool> has_begun_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 || !kMisdeeds.contains(argv[5])) {
    fmt::print(stderr, "usage: {} HOST:PORT NAME FOLDER STORE HOW ROUND\n", argv[0]);
    return 2;
  }
  atl::prepare_process();
  const Misdeed misdeed = kMisdeeds.at(argv[5]);
  const int64_t first_round = std::stoll(argv[6]);
  atl::island::JoinOptions options{
      .coordinator = argv[1],
      .name = argv[2],
      .folder = argv[3],
      .overrides = {std::string("data.path=") + argv[4], "train.threads=1"},
      .around_transport = [&](std::unique_ptr<atl::net::Transport> inner) {
        return std::make_unique<RogueTransport>(std::move(inner), misdeed, first_round);
      }};
  try {
    const atl::SystemClock clock;
    atl::island::join_run(options, clock, [](const atl::run::Progress&) {});
  } catch (const std::exception& error) {
    fmt::print(stderr, "rogue: {}\n", error.what());
    return 1;
  }
  return 0;
}
