#pragma once
// The processes of one island, to each of them: what they sum, and what they tell each other. A
// thin shell over LibTorch's c10d. Process 0 leads: it tells the others what to do, and all of them
// call the same collective functions in the same order. Owned by one thread.
//
// A process that ends, ends the work of all: every function here throws InputError then, which
// names it and says why, or ProcessLost where it went without a word.
//
// Shapes: P = all parameters, of which each process owns a part (parts.h).
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/group/parts.h"
#include "atoll/run/process_place.h"

namespace atl::group {

struct ProcessesOptions {
  run::ProcessPlace place;
  /// How long who is not there yet is waited for, and who gives no sign of life is believed to be.
  Duration timeout{};
};

/// What all processes have begun: until it is done the values are theirs.
class Transfer {
 public:
  class State;
  explicit Transfer(std::unique_ptr<State> state);
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  ~Transfer();
  void wait();

 private:
  std::unique_ptr<State> state_;
};

class Processes {
 public:
  /// Meets the others. Throws InputError naming those that do not come in time.
  Processes(const ProcessesOptions& options, const Clock& clock);
  /// Process 0, if it said neither done() nor why it fails: the others hear that it ended early.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  const run::ProcessPlace& place() const;
  int64_t rank() const { return place().rank; }
  int64_t size() const { return place().size; }

  /// Process 0 says something to all others, and
  void tell(const std::string& text);
  /// the others hear it, in order. Nothing: the work is done.
  std::optional<std::string> hear();
  /// The others have done what was told last and is no collective; process 0 waits for them.
  void ready();
  void wait_until_ready();
  /// Process 0: the work is done. Nothing is told afterwards.
  void done();
  /// This process ends for that reason; the others hear of it.
  void fail(const std::string& reason);

  // All of them, with contiguous values, FP32 or FP64:

  /// Each value becomes the sum of all processes'. The bits are the same everywhere.
  void sum(const at::Tensor& values);
  /// From process 0 to everybody.
  void broadcast(const at::Tensor& values);
  /// From each part's owner to everybody.
  void share_parts(const at::Tensor& values_P, const Parts& parts);
  /// Process 0's values_P, which may be spilled (model/spilled_tensor.h), gets the parts of all,
  /// each owner's `part`.
  void gather_parts(const at::Tensor& part, const at::Tensor& values_P, const Parts& parts);
  /// The other way round. Elsewhere values_P is not looked at in either.
  void scatter_parts(const at::Tensor& values_P, const at::Tensor& part, const Parts& parts);

  // The same while all go on; they begin what they begin in the same order.

  Transfer begin_sum(const at::Tensor& values);
  /// Process `rank` gets the sums; elsewhere the values are unspecified then.
  Transfer begin_sum_to(const at::Tensor& values, int64_t rank);
  /// From process `rank` to everybody.
  Transfer begin_broadcast(const at::Tensor& values, int64_t rank);

 private:
  friend class Transfer;
  class Shell;
  void move_parts(const at::Tensor& part, const at::Tensor& values_P, const Parts& parts,
                  bool to_leader);

  std::unique_ptr<Shell> shell_;
};

}  // namespace atl::group
