#pragma once
// One attempt of a round, seen by one member: reduce-scatter and all-gather of encoded parts.
//
// The values are cut into one share for each member. Everybody sends each owner its encoded part of
// that owner's share; the owner decodes, sums in FP32 in the order of ranks with weights w_i/W
// (each rounded once to FP32), encodes the mean and sends it to all. The owner keeps what it
// decodes from its own encoded mean, so all members hold the same bits, and the result does not
// depend on the order of arrival.
//
// Pure: parts go in, blobs to send come out. It reads what strangers sent: every part is checked,
// and a failure names the peer. Not thread-safe.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/result.h"
#include "atoll/swarm/messages.h"

namespace atl::codec {
class Codec;
}

namespace atl::collective {

/// Largest payload of one Part: many rounds and the control messages of a transport interleave.
constexpr size_t kChunkBytes = size_t{256} << 10;

/// mean[i] += coefficient * values[i], in FP32, never fused. The one loop of every mean.
void accumulate(std::span<float> mean, std::span<const float> values, float coefficient);

/// w_i / W rounded to FP32, by rank.
std::vector<float> coefficients(std::span<const int64_t> weights);

/// An encoded share on its way to one member, to be cut into chunks by the sender.
struct Outgoing {
  int32_t to = 0;
  swarm::Part part;  // Without offset and data.
  std::shared_ptr<const Bytes> blob;
};

class Exchange {
 public:
  struct Plan {
    swarm::Header header;
    int32_t rank = 0;
    std::vector<std::string> members;  // Names by rank.
    std::vector<int64_t> weights;      // > 0
    std::vector<int64_t> shares;       // >= 0
  };

  /// `values` must stay valid and unchanged while this object lives. The plan must be consistent
  /// with it (the caller checked what the coordinator said).
  Exchange(Plan plan, const codec::Codec& codec, std::span<const float> values);
  ~Exchange();

  /// Encodes this member's parts. Call once, first. Fails when a value is not finite.
  [[nodiscard]] Result<void> start();
  /// Takes a chunk in. Chunks of one share come in order. Fails, naming the sender, when it does
  /// not belong here: length, range, round, duplicate, not finite.
  [[nodiscard]] Result<void> receive(const swarm::Part& part);
  /// What is to be sent now; each blob once.
  std::vector<Outgoing> take_outgoing();
  /// The mean is whole.
  bool complete() const { return num_missing_ == 0; }
  std::span<const float> mean() const { return mean_; }
  /// The members that still owe something, for messages: "'a', 'b'".
  std::string debtors() const;
  const Plan& plan() const { return plan_; }

 private:
  struct Incoming {
    Bytes bytes;
    bool done = false;
  };

  size_t size_of(int32_t owner) const;
  std::span<float> mean_of(int32_t owner);
  const std::string& name(int32_t rank) const;
  Result<void> accept(Incoming& incoming, const swarm::Part& part, size_t expected);
  Result<void> decode(const Incoming& incoming, int32_t sender, std::span<float> values);
  /// Once every contribution to this member's share is here: sums, encodes and sends the mean.
  Result<void> reduce_if_whole();
  void send_to(int32_t to, swarm::PartKind kind, int32_t share, std::shared_ptr<const Bytes> blob);

  Plan plan_;
  const codec::Codec& codec_;
  std::span<const float> values_;
  std::vector<size_t> begins_;           // Of each share, within the values.
  std::vector<Incoming> contributions_;  // To this member's share, by sender.
  std::vector<Incoming> means_;          // By owner.
  std::vector<float> mean_;
  std::vector<Outgoing> outgoing_;
  int32_t num_contributions_missing_ = 0;
  int32_t num_missing_ = 0;  // Shares of the mean.
};

}  // namespace atl::collective
