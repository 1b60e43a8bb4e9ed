#pragma once
// Who watches the passes of training over a model, forwards and backwards: which stage's weights
// are read next, and whose gradients are complete. Who shares the work among processes brings,
// drops and sums by that while the pass goes on.
#include <cstdint>
#include <utility>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::model {

/// Stages in the order in which a pass forwards reads them: the embedding, each layer, and the end,
/// which is the final norm with the head.
class PassWatcher {
 public:
  virtual ~PassWatcher() = default;
  /// So many passes follow, forwards and backwards; before them values may have changed.
  virtual void begin(int64_t num_passes) = 0;
  /// The stage's weights are read next: on the way forwards, and once more on the way back (but for
  /// the embedding, which is not read there, and the end, where it begins).
  virtual void before(int64_t stage) = 0;
  /// On the way forwards they are read no more. Not of the end, where the way back begins.
  virtual void behind(int64_t stage) = 0;
  /// On the way back: they are read no more, and the gradients of this pass are complete.
  virtual void back(int64_t stage) = 0;
};

/// What of P, in elements, a stage reads and adds gradients to. A head that is tied reads the
/// embedding, whose gradients are complete with those of the embedding.
struct StageSpans {
  using Spans = std::vector<std::pair<int64_t, int64_t>>;  // [begin, end).
  Spans values;
  Spans gradients;
};

/// Of each stage. Each gradient is in one.
std::vector<StageSpans> stage_spans(const weights::ModelConfig& config);

}  // namespace atl::model
