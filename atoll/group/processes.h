#pragma once
// The processes of one island, to each of them: what they sum, and what they tell each other. A
// thin shell over LibTorch's c10d. Process 0 leads: it tells the others what to do, and all of them
// call the same collective functions in the same order. Owned by one thread.
//
// A process that ends, ends the work of all: every function here throws InputError then, which
// names it and says why, or ProcessLost where it went without a word.
//
// Shapes: P = all parameters. Each process owns a part of P, of equal sizes but for the last.
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/run/process_place.h"

namespace atl::group {

struct ProcessesOptions {
  run::ProcessPlace place;
  /// How long who is not there yet is waited for, and who gives no sign of life is believed to be.
  Duration timeout{};
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

  /// All: each value becomes the sum of all processes'. Contiguous; FP32 or FP64. The bits are the
  /// same everywhere.
  void sum(const at::Tensor& values);
  /// The same, but each process gets the sums of its own part of P alone; the rest is unspecified.
  void sum_to_owners(const at::Tensor& values_P);
  /// All: from each part's owner to everybody.
  void share_parts(const at::Tensor& values_P);
  /// All: from process 0 to everybody.
  void broadcast(const at::Tensor& values);
  /// All: process 0's values_P gets the parts of all, each owner's `part`, and
  void gather_parts(const at::Tensor& part, const at::Tensor& values_P);
  /// the other way round. Elsewhere values_P is not looked at.
  void scatter_parts(const at::Tensor& values_P, const at::Tensor& part);

  /// [begin, end) of `size` values, which `rank` owns.
  std::pair<int64_t, int64_t> part(int64_t size, int64_t rank) const;

 private:
  class Shell;
  void move_parts(const at::Tensor& part, const at::Tensor& values_P, bool to_leader);

  std::unique_ptr<Shell> shell_;
};

}  // namespace atl::group
