#include "atoll/plan/plan_memory.h"

#include <algorithm>
#include <map>
#include <string>

#include "atoll/codec/codec.h"
#include "atoll/method/method.h"
#include "atoll/method/outer_optimizer.h"
#include "atoll/method/sharding.h"
#include "atoll/method/topology.h"
#include "atoll/weights/families.h"

namespace atl::plan {
namespace {

constexpr double kFloat = sizeof(float);
constexpr double kRounded = 2;  // A value in BF16.

/// The encodings that a member holds at once: its own, the others' and, where shares are summed,
/// the mean's (collective/exchange.h).
double encodings_held(collective::Topology topology, int num_members) {
  const auto members = static_cast<double>(num_members);
  if (topology == collective::Topology::kGather) return members;
  return 1 + (members - 1) / members + 1;
}

bool is_on_cpu(const method::TrainOptions& train) { return train.device == "cpu"; }

/// Of a token in a layer, vectors of the hidden size (model/operations.cpp): two sums, queries,
/// keys and values, and attention's result.
double kept_by_kernels(const weights::ModelConfig& model) {
  const weights::LayerDesign& design = weights::family_of(model).design;
  double kept = 6;
  if (design.qk_norm != weights::QkNorm::kNone) kept += 3;  // From before their norms too.
  // Only RMSNorms whose result a single projection reads are not kept.
  const bool forgets =
      design.norm == weights::NormKind::kRms && design.norm_place == weights::NormPlace::kBefore;
  if (!forgets) kept += 2;
  if (model.num_experts > 0) {  // The MLPs' norm is kept, and what is dealt to experts.
    kept += (forgets ? 1 : 0) + 4 * static_cast<double>(model.experts_per_token);
  }
  if (design.norm_place == weights::NormPlace::kAround) kept += 2;
  return kept;
}

/// FP32, all layers.
double kept_bytes(const weights::ModelConfig& model, int64_t sequence_length, bool is_cpu) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const bool is_by_gelu =
      weights::family_of(model).design.mlp == weights::MlpKind::kGatedByGelu;  // Autograd's.
  const auto ff = static_cast<double>(model.intermediate_size) * (is_by_gelu ? 2 : 1) *
                  static_cast<double>(model.num_experts > 0 ? model.experts_per_token : 1);
  const auto heads = static_cast<double>(model.num_heads);
  const double layer =
      is_cpu ? kept_by_kernels(model) * hidden + 2 * ff + 3 * heads + 2
             // Autograd keeps the factors of each operation beside them (model/composite.cpp).
             : 16 * hidden + 4 * ff + heads;
  // The embedding and the last hidden states with their gradient; one more layer for what a
  // backward pass makes.
  const double token = layer * static_cast<double>(model.num_layers + 1) + 4 * hidden;
  return kFloat * token * static_cast<double>(sequence_length);
}

/// Of one position: FP32, with BF16 their gradient, and copies (train/loss.cpp): elsewhere than on
/// a CPU their softmax, under a cap what it leaves of them, the teacher's, what they want, and both
/// apart.
double logit_bytes(const weights::ModelConfig& model, const method::TrainOptions& train) {
  double copies = is_on_cpu(train) ? 1 : 2;
  if (train.precision == "bf16") copies += 0.5;
  if (model.logits_softcap > 0) copies += 1;
  if (!train.teacher.empty()) copies += 3;
  return copies * kFloat * static_cast<double>(model.vocab_size);
}

}  // namespace

ModelSize size_of(const weights::ModelConfig& model) {
  ModelSize size;
  std::map<int64_t, double> layers;
  double largest = 0;
  for (const weights::ParameterSpec& spec : weights::parameter_specs(model)) {
    const auto own = static_cast<double>(spec.size);
    size.params += own;
    if (spec.layer < 0) {
      size.gathered_params += own;
    } else {
      largest = std::max(largest, layers[spec.layer] += own);
    }
  }
  size.gathered_params += static_cast<double>(std::min<size_t>(2, layers.size())) * largest;
  return size;
}

PlannedMemory method_memory(double params, const method::SyncOptions& sync, int num_members,
                            const method::TrainOptions& train) {
  const double one = kFloat * params;
  const bool is_cpu = is_on_cpu(train);
  const method::Method& method = method::method_of(sync);
  const bool has_outer = method.uses("outer_lr");
  PlannedMemory memory;
  // Those that a round changes are whole in process 0, whatever is sharded.
  if (method.reduces_gradients) memory.gradients = one;
  // Of an outer state (sync/outer_state.h): the global copy, and what the optimiser remembers.
  const int num_tensors = has_outer ? method::make_outer_optimizer(sync).num_tensors() : 0;
  // Model and moments; with an outer optimiser also its state, of which the model is part, and the
  // live parameters; and what is on its way.
  memory.checkpoint = (3 + num_tensors + (method.has_delay() ? 1 : 0)) * one;
  double outer_on_device = 0;
  if (has_outer) {
    memory.outer = 2 * num_tensors * one;  // Before and after the round.
    // Of late methods there is a third state, and beside them four sums on their way, of eager
    // DiLoCo also its last outer gradient (sync/eager_diloco.h).
    if (method.is_late) {
      memory.outer += (num_tensors + (method.name == "eager_diloco" ? 5 : 4)) * one;
    }
    outer_on_device = one;                // The outer gradient.
    if (!is_cpu) outer_on_device += one;  // The global copy that it is made from.
    memory.outer += outer_on_device;
  }
  if (!method.is_for_one) {
    const auto codec = codec::make_codec(method::codec_name(sync));
    const double encoded = codec->bits_per_value() / 8 * one / kFloat;
    if (!has_outer) memory.exchange = 2 * one;  // The mean, and the parameters for the digest.
    memory.exchange +=
        one + encoded * encodings_held(method::topology_of(sync, *codec, num_members), num_members);
  }
  const double beside = memory.outer - outer_on_device + memory.exchange + memory.checkpoint;
  memory.device = outer_on_device + (is_cpu ? beside : 0);
  memory.host = is_cpu ? 0 : beside;
  return memory;
}

PlannedMemory with_state(PlannedMemory memory, const ModelSize& size,
                         const method::TrainOptions& train, int64_t num_processes) {
  const double moments = method::moment_bytes(train);
  const bool is_bf16 = train.precision == "bf16";
  const std::string shard = num_processes > 1 ? train.shard : "none";
  const double kept = memory.checkpoint + memory.outer;
  memory.parameters = kFloat * size.params;
  if (shard == "zero3") {
    const double part =
        method::leaders_share(moments, memory.gradients > 0, num_processes) * size.params;
    memory.parameters += (kFloat + (is_bf16 ? kRounded : 0)) * size.gathered_params;
    if (memory.gradients == 0) memory.gradients = kFloat * (part + size.gathered_params);
    memory.moments = moments * part;
    memory.checkpoint = memory.outer = 0;  // They are on the disk (method::spills_to_disk()).
  } else {
    if (is_bf16) memory.parameters += kRounded * size.params;
    memory.gradients = kFloat * size.params;
    memory.moments = moments * size.params;
    if (shard == "zero1") {
      memory.checkpoint += memory.moments;  // Gathered, from a checkpoint to the next update.
      memory.moments /= static_cast<double>(num_processes);
    }
  }
  (is_on_cpu(train) ? memory.device : memory.host) += memory.checkpoint + memory.outer - kept;
  memory.device += memory.parameters + memory.gradients + memory.moments;
  return memory;
}

PassMemory pass_memory(const weights::ModelConfig& model, const method::TrainOptions& train) {
  weights::ModelConfig kept = model;
  double bytes = 0;
  if (train.activation_checkpointing) {
    // What each layer reads; of one at a time the rest is there.
    bytes =
        kFloat * static_cast<double>(kept.num_layers * kept.hidden_size * train.sequence_length);
    kept.num_layers = 1;
  }
  bytes += kept_bytes(kept, train.sequence_length, is_on_cpu(train));
  const double logits = logit_bytes(model, train);
  const int64_t slice = method::loss_slice(model.vocab_size, is_on_cpu(train));
  return {.row = train.precision == "bf16" ? bytes / 2 : bytes,
          .row_logits = logits * static_cast<double>(train.sequence_length),
          .most_logits = logits * static_cast<double>(slice)};
}

PlannedMemory with_rows(PlannedMemory memory, const PassMemory& pass, int64_t rows) {
  memory.activations = pass.bytes(rows);
  memory.device += memory.activations;
  return memory;
}

}  // namespace atl::plan
