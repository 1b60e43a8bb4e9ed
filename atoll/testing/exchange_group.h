#pragma once
// For tests: the members of a round in one thread. What one sends waits on a link until it is
// delivered, in any order that a seed chooses.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"
#include "atoll/swarm/rules.h"
#include "atoll/testing/mean_definition.h"

namespace atl::collective {

using swarm::Part;
using swarm::PartKind;

inline constexpr int64_t kRound = (int64_t{1} << 32) + 4;  // Sequence 4.

/// What the members of a round hold; change it, then connect().
struct Group {
  Group(size_t num_members, size_t count, const std::string& codec_name, Topology topology,
        uint64_t seed = 1)
      : codec(codec::make_codec(codec_name)) {
    in.codec = codec.get();
    in.topology = topology;
    in.sequence = 4;
    in.segment_values = 700;
    for (size_t rank = 0; rank < num_members; ++rank) {
      names.push_back(std::string(1, static_cast<char>('a' + rank)));
      in.weights.push_back(static_cast<int64_t>(1 + random_bits(seed, 1, rank) % 1000));
      in.values.push_back(normal(count, seed, 2 + rank));
      numbers.push_back(static_cast<int32_t>(rank));
    }
    in.shares = swarm::equal_shares(num_segments(), static_cast<int64_t>(num_members));
  }
  int64_t num_segments() const {
    return swarm::num_segments(static_cast<int64_t>(in.values[0].size()),
                               static_cast<int64_t>(in.segment_values));
  }
  static std::vector<float> normal(size_t count, uint64_t seed, uint64_t stream) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(random_normal(seed, stream, i));
    }
    return values;
  }
  void add_residuals() {
    for (size_t rank = 0; rank < names.size(); ++rank) {
      in.residuals.push_back(normal(in.values[0].size(), 3, rank));
    }
  }
  void connect() {
    new_residuals.assign(names.size(), std::vector<float>(in.values[0].size(), 77.0F));
    for (size_t rank = 0; rank < names.size(); ++rank) {
      Contribution& mine = contributions.emplace_back();
      if (on_device) {
        mine.device_values = {
            in.values[rank].size(),
            [this, rank](size_t begin, size_t size, uint32_t sequence, Bytes& out) {
              num_device_encodings += 1;
              in.codec->encode(std::span(in.values[rank]).subspan(begin, size), out, sequence);
            }};
      } else {
        mine.values = in.values[rank];
      }
      mine.codec = in.codec;
      mine.topology = in.topology;
      mine.needs_own = true;
      if (in.residuals.empty()) continue;
      mine.mean_residual = in.residuals[rank];
      mine.new_mean_residual = new_residuals[rank];
    }
    for (size_t rank = 0; rank < names.size(); ++rank) {
      members.push_back(std::make_unique<Exchange>(
          Exchange::Plan{.header = {.run = "", .term = 1, .round = kRound, .attempt = 0},
                         .rank = static_cast<int32_t>(rank),
                         .numbers = numbers,
                         .members = names,
                         .weights = in.weights,
                         .shares = in.shares,
                         .segment_values = in.segment_values},
          contributions[rank]));
    }
  }

  /// Does one unit of a member's work; what comes of it goes to the links.
  bool work(size_t rank, bool may_encode = true) {
    const auto worked = members[rank]->work(may_encode);
    EXPECT_TRUE(worked.has_value()) << worked.error().message;
    std::set<int32_t> sent;
    for (const Outgoing& outgoing : members[rank]->take_outgoing()) {
      sent.insert(outgoing.part.segment);
      EXPECT_TRUE(may_encode || outgoing.part.kind == PartKind::kMean);
      cut(outgoing);
    }
    EXPECT_LE(sent.size(), 1U) << "a unit is at most one segment";
    return worked.has_value() && *worked;
  }
  void cut(const Outgoing& outgoing) {
    for (size_t offset = 0; offset < outgoing.blob->size(); offset += chunk) {
      Part part = outgoing.part;
      part.offset = offset;
      const auto data = std::span(*outgoing.blob)
                            .subspan(offset, std::min(chunk, outgoing.blob->size() - offset));
      part.data.assign(data.begin(), data.end());
      links[{part.sender, outgoing.to}].push_back(part);
    }
  }
  /// Runs the round; the seed decides who works and which link delivers its next chunk.
  void run(uint64_t order) {
    connect();
    uint64_t draws = 0;
    const auto draw = [&](size_t end) { return random_bits(order, 9, draws++) % end; };
    while (true) {
      std::vector<std::pair<int32_t, int32_t>> busy;
      for (auto& [link, queue] : links) {
        if (!queue.empty()) busy.push_back(link);
      }
      const size_t choice = draw(busy.size() + 1);
      if (choice < busy.size()) {
        auto& queue = links[busy[choice]];
        const auto received =
            members[static_cast<size_t>(busy[choice].second)]->receive(queue.front());
        ASSERT_TRUE(received.has_value()) << received.error().message;
        queue.pop_front();
      } else if (!work(draw(names.size()), draw(2) == 0) && busy.empty()) {
        bool any = false;
        for (size_t rank = 0; rank < names.size(); ++rank) any = work(rank) || any;
        if (!any) return;
      }
    }
  }
  void expect_as_defined() {
    const DefinedRound expected = define_round(in);
    for (size_t rank = 0; rank < names.size(); ++rank) {
      ASSERT_TRUE(members[rank]->complete()) << members[rank]->debtors().size() << " owe something";
      ASSERT_TRUE(std::ranges::equal(members[rank]->mean(), expected.mean));
      ASSERT_TRUE(std::ranges::equal(members[rank]->own(), expected.own[rank]));
      if (!in.residuals.empty()) {
        ASSERT_EQ(new_residuals[rank], expected.new_residuals[rank]);
      }
    }
  }

  std::unique_ptr<codec::Codec> codec;
  std::vector<std::string> names;
  std::vector<int32_t> numbers;
  RoundInputs in;
  size_t chunk = 1000;
  bool on_device = false;  // The values are behind a function.
  size_t num_device_encodings = 0;
  std::vector<std::vector<float>> new_residuals;
  std::deque<Contribution> contributions;
  std::vector<std::unique_ptr<Exchange>> members;
  std::map<std::pair<int32_t, int32_t>, std::deque<Part>> links;
};

}  // namespace atl::collective
