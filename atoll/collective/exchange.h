#pragma once
// A round, seen by one member: who encodes, sends, decodes and sums what. How contributions become
// a mean is another's (segment_mean.h). With Topology::kGather each member makes all of it. With
// kScatter the owner of each share makes that, and the result is decode(encode(mean + residual)):
// owners too keep what the others decode. So all members hold the same bits, whatever the order of
// arrival.
//
// Values travel and are summed in segments, each encoded on its own: what is encoded is sent while
// the rest is not, and no unit of work() is larger than one segment. How values are cut does not
// depend on the members.
//
// A round may take several attempts, with fewer members each, or with weight 0 for one whose
// contribution is left out; it stays so. A contribution is the same in all of them: what has come
// stays, and what was sent is not sent again to whom it was sent. The means are made anew. So a
// member that vanishes costs only what it owned. Where a connection broke, and for members that
// reach each other through a third, nobody knows what has come: the next attempt sends it again,
// and what came whole stays.
//
// A contribution that cannot be decoded, or not to finite values, ends the attempt here: no mean
// ever holds anything but all contributions of its attempt.
//
// Memory beyond the caller's spans: the mean, `own` if wanted, two segments, and encoded bytes:
// this member's until they are sent (the caller bounds them by holding work() back) and the others'
// as long as there may be another attempt, about (M - 1) / M of the encoded values with kScatter
// and M - 1 times them with kGather, plus the encoded mean. With four members or more also samples
// of the contributions (measures.h), 1 MiB at most.
//
// Pure: parts go in, blobs to send come out. It reads what strangers sent: every part is checked,
// and a failure names the peer. Not thread-safe.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/blob_arena.h"
#include "atoll/collective/blob_pool.h"
#include "atoll/collective/incoming_blob.h"
#include "atoll/collective/measures.h"
#include "atoll/collective/round_result.h"
#include "atoll/collective/segment_mean.h"
#include "atoll/collective/segments.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

/// An encoded segment on its way to one member, to be cut into chunks by the sender.
struct Outgoing {
  int32_t to = 0;    // Number of the member.
  swarm::Part part;  // Without offset and data.
  std::shared_ptr<const Bytes> blob;
};

/// Who has not sent all that this member waits for.
struct Debtor {
  int32_t number = 0;
  bool owes_only_means = false;  // It may be waiting for contributions itself.

  bool operator==(const Debtor&) const = default;
};

class Exchange {
 public:
  /// Of one attempt; by rank, which is the order of summation.
  struct Plan {
    swarm::Header header;
    int32_t rank = 0;                  // This member's.
    std::vector<int32_t> numbers;      // By which parts name members; for the whole round.
    std::vector<std::string> members;  // Names, for messages.
    std::vector<int64_t> weights;      // >= 0
    std::vector<int64_t> shares;       // Segments, >= 0, adding up to all. With kGather only
                                       // measures() asks for them.
    size_t segment_values = kSegmentValues;

    int32_t number(int32_t of_rank) const { return numbers[static_cast<size_t>(of_rank)]; }
    int64_t own_weight() const { return weights[static_cast<size_t>(rank)]; }
  };

  /// `contribution` and what it refers to must outlive this object; its prepare() is not called.
  /// The plan must be consistent with it (the caller checked what the coordinator said). What it
  /// holds comes from `memory` and goes back there; null: it has its own.
  Exchange(Plan plan, const Contribution& contribution,
           std::shared_ptr<RoundMemory> memory = nullptr);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// The next attempt: the same segments, and some of the members.
  void reopen(Plan plan);
  /// Takes a chunk in. Chunks of one segment come in order. What an earlier attempt left on its way
  /// is dropped or kept, whichever is right. Fails, naming the sender, when it cannot belong here:
  /// length, range, round, duplicate.
  [[nodiscard]] Result<void> receive(const swarm::Part& part) { return receive(part, part.data); }
  /// With data that lies elsewhere.
  [[nodiscard]] Result<void> receive(const swarm::Part& part, std::span<const std::byte> data);
  /// Does one bounded unit: encodes a segment, or decodes one and adds it, or makes the mean of
  /// one. False: nothing can be done until a part comes, or `may_encode` is true again, which holds
  /// back what would be sent. Fails, naming the peer, when values are not finite; then for all of
  /// the attempt.
  [[nodiscard]] Result<bool> work(bool may_encode = true);
  /// What is to be sent now; each blob once.
  std::vector<Outgoing> take_outgoing();
  /// The mean is whole, and nothing is left to send.
  bool complete() const { return num_missing_ == 0 && !failed_; }
  /// The mean and, if wanted, this member's contribution as the others decode it. Once complete.
  std::span<const float> mean() const { return mean_; }
  std::span<const float> own() const { return own_; }
  /// The members that still owe something, by rank.
  std::vector<Debtor> debtors() const;
  /// The way to a member broke: the next attempt sends it again what it may not have got.
  void forget(int32_t number);
  /// The number of who made work() fail; -1: this member's own values did.
  int32_t culprit() const { return culprit_; }
  /// It did so by its contribution: the round can go on without that.
  bool is_culprit_a_contributor() const { return is_culprit_a_contributor_; }
  /// How large the contributions are, as they are decoded, and how they lie to each other, in the
  /// segments that the shares give to this member. So those of all members add up to the whole,
  /// with kGather too. Once complete.
  swarm::Measures measures() const;
  /// What the round was made of, for those who had no part in it. Once complete.
  RoundResult take_result();
  /// The attempt counts, and this member goes no further with it: what is not summed here keeps its
  /// residual. Where the mean is whole there is nothing to do.
  void settle_residual();
  const Plan& plan() const { return plan_; }

 private:
  struct Segment {
    size_t begin = 0;  // Within the values.
    size_t size = 0;
    std::map<int32_t, IncomingBlob> contributions;  // By number.
    std::set<int32_t> sent_to;                      // Numbers of those who have this member's.
    // Of this attempt:
    int32_t owner = 0;  // Rank. With kGather all sum it, and this one says how large they are.
    bool waits_to_be_sent = false;
    std::shared_ptr<const Bytes> own;  // This member's, sent and not yet summed.
    SharedBytes kept;  // As it travels, for the result: the mean, or with kGather this member's.
    IncomingBlob incoming_mean;  // Where another member sums.
    SegmentMean mean;            // As it is made here.
    SegmentMeasures measures;    // Of contributions, for the owner.

    /// Of something as long as the values, or empty.
    template <typename Value>
    std::span<Value> of(std::span<Value> all) const {
      return all.empty() ? all : all.subspan(begin, size);
    }
  };
  enum class UnitKind : uint8_t { kAdd, kMakeMean, kTakeMean };
  struct Unit {
    UnitKind kind;
    size_t segment;
  };

  void cut_into_segments();
  void begin_attempt();
  void assign_owners();
  void make_room_for_samples();
  Sampling sampling() const { return {plan_.header.round, contribution_.num_values()}; }
  void plan_sends();
  /// Ranks, the next one first, so that not all members send to the same one at once.
  std::vector<int32_t> others() const;
  /// Of those, who need this member's contribution to a segment and do not have it.
  std::vector<int32_t> receivers(const Segment& segment) const;
  bool is_summed_here(const Segment& segment) const;
  bool gathers() const { return contribution_.topology == Topology::kGather; }
  bool abstains(int32_t rank) const { return plan_.weights[static_cast<size_t>(rank)] == 0; }
  const std::string& name(int32_t rank) const;

  std::optional<int32_t> rank_of(int32_t number) const;
  /// Adds the unit that the sum of a segment can do next, if there is one.
  void schedule_sum(size_t index);
  Result<void> do_next_send();
  Result<void> add_next(size_t index);
  Result<void> make_mean(Segment& segment);
  Result<void> take_mean(Segment& segment);
  void keep_residual(const Segment& segment);
  Result<std::shared_ptr<const Bytes>> encode_own(const Segment& segment);
  /// Fails, naming who sent what is decoded, when that throws.
  template <typename Decode>
  Result<void> guard(int32_t sender, Decode decode);
  void send(const Segment& segment, swarm::PartKind kind, std::shared_ptr<const Bytes> blob,
            const std::vector<int32_t>& ranks);

  Plan plan_;
  const Contribution& contribution_;
  MeanRule rule_;
  std::vector<Segment> segments_;  // In the order of the values.
  std::deque<size_t> to_encode_;   // Segments to send, in their order.
  std::deque<Unit> units_;         // What can be done.
  std::shared_ptr<RoundMemory> memory_;
  std::shared_ptr<PagePool::Pages> values_memory_;   // Touched segment by segment.
  std::shared_ptr<PagePool::Pages> samples_memory_;  // Of contributions to this member's share.
  std::span<float> mean_;
  std::span<float> own_;        // Empty unless wanted.
  std::vector<float> decoded_;  // One segment.
  BlobArena contributions_;     // Of the others; with kGather this member's too.
  BlobArena means_;             // Of this attempt, encoded.
  std::vector<Outgoing> outgoing_;
  size_t num_missing_ = 0;    // Segments of the mean.
  bool has_encoded_ = false;  // As the last unit of work.
  bool failed_ = false;
  int32_t culprit_ = -1;
  bool is_culprit_a_contributor_ = false;
};

}  // namespace atl::collective
