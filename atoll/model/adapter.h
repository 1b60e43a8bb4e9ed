#pragma once
// LoRA beside a model's projections (weights/adapter.h), where their products are made. Atoll joins
// projections that read the same (queries, keys and values; gate and up), and an adapter changes
// each alone: it adds to some of the outputs. Owned by one thread.
//
// Shapes: M = rows, O = outputs, K = inputs, R = rank.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "atoll/model/kv_cache.h"
#include "atoll/model/parameters.h"
#include "atoll/weights/adapter.h"

namespace atl::model {

/// Which projections of a layer: all of a role.
struct ProjectionPlace {
  int64_t layer = 0;
  weights::Role role = weights::Role::kQueryKeyValue;

  auto operator<=>(const ProjectionPlace&) const = default;
};

class Adapter {
 public:
  /// y += scale (x A^T) B^T for some of the outputs y. The values are leaves of autograd, views of
  /// the flat buffer; on the CPU they are `stored` as well, as matrices are that are read.
  struct Part {
    int64_t first_output = 0;
    Weight a_RK, b_OR;
  };

  /// Of zeros, beside some of the model's layers. Throws UsageError: see weights::check().
  Adapter(const weights::ModelConfig& model, weights::AdapterConfig config, LayerRange layers,
          at::Device device, Purpose purpose);

  /// A uniform within 1 / sqrt(inputs), B zero, so that it changes nothing at first; a prompt
  /// normal with deviation 0.02. A pure function of (seed, name, index).
  void initialise(uint64_t seed);

  const weights::AdapterConfig& config() const { return config_; }
  LayerRange layers() const { return layers_; }
  const Parameters& parameters() const { return parameters_; }
  double scale() const { return config_.is_prompt() ? 1 : config_.scale(); }
  /// In the order of their outputs.
  std::span<const Part> parts(ProjectionPlace place) const;
  /// Where the values of these layers' parts lie in the flat buffer: from, and how many.
  std::pair<int64_t, int64_t> values_of(LayerRange layers) const;
  /// The leaves of a layer's parts, in the order of the flat buffer.
  std::vector<at::Tensor> leaves(int64_t layer) const;

 private:
  Weight weight_of(const weights::ParameterSpec& spec) const;

  weights::AdapterConfig config_;
  LayerRange layers_;
  Parameters parameters_;
  std::map<ProjectionPlace, std::vector<Part>> parts_;
};

/// Which rows, of those that lie one behind the other, an adapter changes; ascending.
struct RowsOfAdapter {
  const Adapter* adapter = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};
using AdaptedRows = std::vector<RowsOfAdapter>;

/// Those of a pass; neighbours with one adapter are one.
AdaptedRows adapted_rows(std::span<const CachedRow> rows);
/// Those from `begin` on, which is row 0 then.
AdaptedRows cut(const AdaptedRows& rows, int64_t begin, int64_t count);

/// y, which the projections made of x (both with rows before the last dimension), with what the
/// adapters add. Where x has a gradient, so has the result, and all rows have one adapter; else y
/// may be overwritten, and each row's bits hang on no other.
at::Tensor with_adapters(const at::Tensor& y, const at::Tensor& x, ProjectionPlace place,
                         const AdaptedRows& rows);

}  // namespace atl::model
