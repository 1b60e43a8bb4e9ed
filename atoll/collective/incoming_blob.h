#pragma once
// One encoded segment as it comes from a member, chunk by chunk, into the place where it stays. Its
// length is what the first chunk says, and never changes: who begins anew sends the same bytes.
// Pure; it reads what strangers send: nothing is kept that is not next.
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "atoll/base/result.h"
#include "atoll/collective/blob_arena.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

class IncomingBlob {
 public:
  /// In which attempt it is sent: term and number, which coordinators that follow each other may
  /// give twice.
  using Attempt = std::pair<uint64_t, int32_t>;

  /// What is known of it before it comes.
  struct Expected {
    const std::string& sender;  // Its name, for messages.
    size_t num_values = 0;
    size_t most = 0;  // Bytes.
  };

  /// From here on chunks are of that attempt; with the first of them it begins anew. False: it is
  /// whole already, or a newer attempt sends it.
  bool begin(Attempt attempt);
  /// Takes a chunk in; memory for all comes from `arena` with the first. Fails, naming the sender,
  /// where it is not what comes next.
  [[nodiscard]] Result<void> take(const swarm::Part& part, std::span<const std::byte> data,
                                  const Expected& expected, BlobArena& arena);

  size_t received() const { return received_; }
  bool done() const { return done_; }
  std::span<const std::byte> bytes() const { return slot_.bytes; }
  SharedBytes shared() const { return slot_.shared(); }
  /// Nobody needs the bytes any more; it stays done.
  void let_go() { slot_ = {}; }

 private:
  BlobArena::Slot slot_;  // Empty before the first chunk.
  size_t received_ = 0;
  bool done_ = false;
  Attempt attempt_;
};

}  // namespace atl::collective
