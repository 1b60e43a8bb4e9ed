#pragma once
// Which models a plan chooses among: those of the papers' table and whatever lies between and
// beyond, by its rule: as many layers as 3/256 of the width, heads of 64. Plain values; pure.
#include <cstdint>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::plan {

struct PlannedShape {
  int64_t layers = 0;
  int64_t hidden = 0;
  double law_params = 0;    // As the laws count.
  double atoll_params = 0;  // What is trained, sent and held: norms and three MLP matrices too.
};

/// Models with that vocabulary.
class Shapes {
 public:
  /// `papers`: the laws count as papers_params() does, else as Atoll.
  Shapes(int64_t vocab_size, bool papers);

  /// The one with nearest to `law_params`, its depth near the rule's.
  PlannedShape near(double law_params) const;
  /// From the smallest to the largest, each about a tenth larger than the one before.
  std::vector<PlannedShape> ladder() const;
  /// Its settings. `max_positions` as the rows need.
  weights::ModelConfig config(const PlannedShape& shape, int64_t sequence_length) const;

 private:
  /// Parameters are base + layers * per_layer in both counts.
  struct Width {
    int64_t hidden = 0;
    double papers_base = 0;
    double papers_per_layer = 0;
    double atoll_base = 0;
    double atoll_per_layer = 0;
  };
  PlannedShape shape_of(const Width& width, int64_t layers) const;

  int64_t vocab_size_;
  bool papers_;
  std::vector<Width> widths_;
};

}  // namespace atl::plan
