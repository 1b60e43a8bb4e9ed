#pragma once
// What a training step costs in operations. Pure.
#include <cstdint>

#include "atoll/weights/config.h"

namespace atl::plan {

/// Elements of the matrices that a token is multiplied with: all but norms and biases, an embedding
/// that is looked up alone, and the experts that it does not visit.
double multiplied_parameters(const weights::ModelConfig& model);

/// Additions and multiplications of a token's training: 6 for each multiplied parameter (2
/// forwards, 4 backwards), and 12 x head size x heads for each position that its query sees in each
/// layer, its own and earlier ones, on the average of a row. What a backward pass computes again to
/// save memory does not count.
double token_operations(const weights::ModelConfig& model, int64_t sequence_length);

}  // namespace atl::plan
