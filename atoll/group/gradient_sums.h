#pragma once
// Gradients summed among an island's processes, a span at a time.
#include <ATen/core/Tensor.h>

#include <vector>

#include "atoll/group/parts.h"
#include "atoll/group/processes.h"

namespace atl::group {

/// Who needs the sums.
enum class SumsFor { kAll, kOwners, kLeader };

class GradientSums {
 public:
  /// The processes and parts outlive it.
  GradientSums(Processes& processes, const at::Tensor& gradients_P, const Parts& parts, SumsFor who)
      : processes_(processes), gradients_P_(gradients_P), parts_(parts), who_(who) {}

  SumsFor who() const { return who_; }
  /// Of [begin, end) of P.
  void begin(Span span, std::vector<Transfer>& transfers);
  /// Of which this process gets the sums; elsewhere its gradients are unspecified then.
  Span own() const;

 private:
  Processes& processes_;
  const at::Tensor gradients_P_;
  const Parts& parts_;
  const SumsFor who_;
};

}  // namespace atl::group
