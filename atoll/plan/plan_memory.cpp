#include "atoll/plan/plan_memory.h"

#include "atoll/codec/codec.h"
#include "atoll/method/method.h"
#include "atoll/method/topology.h"

namespace atl::plan {
namespace {

constexpr double kFloat = sizeof(float);
/// Logits of a slice of the tokens, and what the loss makes of them (train/loss.cpp).
constexpr double kLogitBytes = 4.0 * (8 << 20);

/// The encodings that a member holds at once: its own, the others' and, where shares are summed,
/// the mean's (collective/exchange.h).
double encodings_held(collective::Topology topology, int num_members) {
  const auto members = static_cast<double>(num_members);
  if (topology == collective::Topology::kGather) return members;
  return 1 + (members - 1) / members + 1;
}

}  // namespace

PlannedMemory planned_memory(double params, const method::SyncOptions& sync, int num_members,
                             bool is_cpu) {
  const double one = kFloat * params;
  const method::Method& method = method::method_of(sync);
  const bool has_outer = method.uses("outer_lr");
  PlannedMemory memory{.parameters = one, .gradients = one, .moments = 2 * one};
  // Model and moments; with an outer optimiser also the live parameters and its momentum, and what
  // is on its way.
  memory.checkpoint = (3 + (has_outer ? 2 : 0) + (method.has_delay() ? 1 : 0)) * one;
  double outer_on_device = 0;
  if (has_outer) {
    // Global copy and momentum, before and after the round (sync/outer_state.h).
    memory.outer = 4 * one;
    outer_on_device = one;                // The outer gradient.
    if (!is_cpu) outer_on_device += one;  // The global copy that it is made from.
    memory.outer += outer_on_device;
  } else if (!method.is_for_one) {
    memory.outer = 2 * one;  // Data-parallel: the mean, and the parameters for the digest.
  }
  if (!method.is_for_one) {
    const auto codec = codec::make_codec(method::codec_name(sync));
    const double encoded = codec->bits_per_value() / 8 * one / kFloat;
    memory.exchange =
        one + encoded * encodings_held(method::topology_of(sync, *codec, num_members), num_members);
  }
  const double training = memory.parameters + memory.gradients + memory.moments;
  const double beside = memory.outer - outer_on_device + memory.exchange + memory.checkpoint;
  memory.device = training + outer_on_device + (is_cpu ? beside : 0);
  memory.host = is_cpu ? 0 : beside;
  return memory;
}

double activation_bytes(const weights::ModelConfig& model, int64_t sequence_length, bool is_cpu) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto ff = static_cast<double>(model.intermediate_size);
  const auto heads = static_cast<double>(model.num_heads);
  // Per token and layer. Kernels keep two sums and two norms, queries, keys and values before and
  // after their norms, attention's result, gates, ups and their product (model/operations.cpp).
  // Autograd keeps the factors of each operation beside them (model/composite.cpp).
  const double layer = is_cpu ? 11 * hidden + 3 * ff + 3 * heads + 2 : 16 * hidden + 4 * ff + heads;
  // The embedding and the last hidden states with their gradient; one more layer for what a
  // backward pass makes.
  const double token = layer * static_cast<double>(model.num_layers + 1) + 4 * hidden;
  return kFloat * token * static_cast<double>(sequence_length);
}

PlannedMemory with_rows(PlannedMemory memory, double row_bytes, int64_t rows) {
  memory.activations = kLogitBytes + row_bytes * static_cast<double>(rows);
  memory.device += memory.activations;
  return memory;
}

}  // namespace atl::plan
