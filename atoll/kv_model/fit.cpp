#include "atoll/kv_model/fit.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/kv/tables.h"
#include "atoll/kv_model/planes.h"
#include "atoll/kv_model/rates.h"
#include "atoll/kv_model/samples.h"

namespace atl::kv_model {
namespace {

/// Components of which fewer numbers are not 0 are left out of a level.
constexpr double kLeastAlive = 0.003;
/// Values this much beyond the largest that was seen can still be encoded.
constexpr float kHeadroom = 1.5F;

/// Directions of a group: z = forward y, of falling variance, and y = inverse z.
struct Directions {
  at::Tensor forward_RM, inverse_MR;  // Float; as many components as channels.
};

std::vector<float> floats_of(const at::Tensor& x) {
  const at::Tensor whole = x.contiguous();
  const float* const data = whole.const_data_ptr<float>();
  return {data, data + whole.numel()};
}

const at::Tensor& moments_of(const Sensitivity& sensitivity, size_t plane) {
  return plane % 2 == 0 ? sensitivity.keys_LCC : sensitivity.values_LCC;
}

at::Tensor sensitivity_CC(const Sensitivity& sensitivity, size_t plane) {
  return moments_of(sensitivity, plane)[static_cast<int64_t>(plane / 2)];
}

/// The sensitivity's root and its inverse, planes on the diagonal.
std::pair<at::Tensor, at::Tensor> roots_MM(const kv::Group& group, const Sensitivity& sensitivity,
                                           double ridge) {
  const std::vector<size_t> planes = planes_in(group);
  const int64_t width = sensitivity.keys_LCC.size(1);
  const int64_t size = width * std::ssize(planes);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  at::Tensor root_MM = at::zeros({size, size}, options);
  at::Tensor inverse_MM = at::zeros({size, size}, options);
  int64_t begin = 0;
  for (const size_t plane : planes) {
    const at::Tensor moments_CC = sensitivity_CC(sensitivity, plane);
    // A plane that nothing hangs on is as dear as the smallest number that squares.
    const double mean =
        std::max(moments_CC.trace().item<double>() / static_cast<double>(width), 1e-30);
    const auto [values_C, vectors_CC] =
        at::linalg_eigh(moments_CC + ridge * mean * at::eye(width, options));
    const at::Tensor lengths_C = values_C.clamp_min(1e-3 * ridge * mean).sqrt();
    const auto put = [&](const at::Tensor& to_MM, const at::Tensor& by_C) {
      to_MM.narrow(0, begin, width)
          .narrow(1, begin, width)
          .copy_((vectors_CC * by_C).matmul(vectors_CC.t()));
    };
    put(root_MM, lengths_C);
    put(inverse_MM, lengths_C.reciprocal());
    begin += width;
  }
  return {root_MM, inverse_MM};
}

Directions directions_of(const kv::Group& group, const at::Tensor& covariance_MM,
                         const Sensitivity& sensitivity, double ridge) {
  const auto [root_MM, inverse_MM] = roots_MM(group, sensitivity, ridge);
  const auto [variances_R, vectors_MR] =
      at::linalg_eigh(root_MM.matmul(covariance_MM).matmul(root_MM));
  const at::Tensor falling_MR = vectors_MR.flip(1);
  return {.forward_RM = falling_MR.t().matmul(root_MM).to(at::kFloat).contiguous(),
          .inverse_MR = inverse_MM.matmul(falling_MR).to(at::kFloat).contiguous()};
}

/// (R, N): components of some texts' tokens.
Components components_of(const Samples& samples, const kv::Group& group,
                         const Directions& directions, std::span<const float> means_PC,
                         size_t max_texts) {
  Components all;
  const size_t stride = std::max<size_t>(1, samples.num_texts() / max_texts);
  for (size_t text = 0; text < samples.num_texts(); text += stride) {
    std::vector<float> y_MN = samples.straight(group, text, means_PC);
    const auto width = static_cast<int64_t>(samples.num_kept());
    const at::Tensor y =
        at::from_blob(y_MN.data(), {static_cast<int64_t>(y_MN.size()) / width, width},
                      at::TensorOptions().dtype(at::kFloat));
    all.add(floats_of(directions.forward_RM.matmul(y)), samples.num_kept());
  }
  return all;
}

std::vector<kv::Group> groups_of(int64_t num_layers, int64_t group_layers) {
  std::vector<kv::Group> groups;
  for (int64_t begin = 0; begin < num_layers; begin += group_layers) {
    const auto first = static_cast<int32_t>(begin);
    const auto end = static_cast<int32_t>(std::min(num_layers, begin + group_layers));
    for (const bool has_values : {false, true}) {
      groups.push_back({.first_layer = first, .end_layer = end, .has_values = has_values});
    }
  }
  return groups;
}

/// Tables and means of a group's levels, of the numbers that its transform makes of all samples.
void fit_tables(const Samples& samples, size_t index, kv::Profile& profile) {
  const kv::Group& group = profile.groups[index];
  Components all;
  for (size_t text = 0; text < samples.num_texts(); ++text) {
    std::vector<uint8_t> refused(samples.num_kept());
    all.add(group.transform.components(samples.straight(group, text, profile.means_PC),
                                       group.transform.num_components(), refused),
            samples.num_kept());
  }
  for (kv::TransformLevel& level : profile.transforms) {
    kv::GroupLevel& of_group = level.groups[index];
    of_group.step = all.fitted_step(of_group.step.step, of_group.num_components);
    for (size_t r = 0; r < of_group.num_components; ++r) {
      of_group.tables_R.push_back(kv::fit_table(all.numbers(r, of_group.step.step)).table);
    }
  }
}

void fit_transforms(const Samples& samples, const Sensitivity& sensitivity,
                    const FitOptions& options, kv::Profile& profile) {
  std::vector<Directions> directions;
  std::vector<Components> some;  // Enough to choose steps by.
  constexpr size_t kTexts = 6;
  for (size_t i = 0; i < profile.groups.size(); ++i) {
    directions.push_back(
        directions_of(profile.groups[i], samples.covariance(i), sensitivity, options.ridge));
    some.push_back(
        components_of(samples, profile.groups[i], directions.back(), profile.means_PC, kTexts));
  }
  for (const double bits : options.transform_bits) {
    const auto step = static_cast<float>(step_for(some, bits));
    kv::TransformLevel& level = profile.transforms.emplace_back();
    for (const Components& of_group : some) {
      level.groups.push_back({.num_components = of_group.num_alive(step, kLeastAlive),
                              .step = {.step = step},
                              .tables_R = {}});
    }
  }
  for (size_t i = 0; i < profile.groups.size(); ++i) {
    int64_t most = 1;
    for (const kv::TransformLevel& level : profile.transforms) {
      most = std::max<int64_t>(most, level.groups[i].num_components);
    }
    kv::Group& group = profile.groups[i];
    std::vector<float> largest = samples.largest(group);
    for (float& value : largest) value *= kHeadroom;
    group.transform =
        kv::GroupTransform(floats_of(directions[i].forward_RM.narrow(0, 0, most)),
                           floats_of(directions[i].inverse_MR.narrow(1, 0, most)), largest);
    fit_tables(samples, i, profile);
  }
}

/// A plane's kept tokens of some texts, (C, N).
std::vector<uint16_t> plane_of(const Samples& samples, size_t plane, size_t max_texts) {
  const size_t stride = std::max<size_t>(1, samples.num_texts() / max_texts);
  std::vector<uint16_t> plane_CN;
  for (size_t c = 0; c < samples.num_channels(); ++c) {
    for (size_t text = 0; text < samples.num_texts(); text += stride) {
      const auto row =
          samples.kept(text, plane).subspan(c * samples.num_kept(), samples.num_kept());
      plane_CN.insert(plane_CN.end(), row.begin(), row.end());
    }
  }
  return plane_CN;
}

/// What an error costs in each channel of a plane. Pairs of a key that turn have it together: each
/// of them is at all angles.
std::vector<double> dearness_of(const Samples& samples, const Sensitivity& sensitivity,
                                size_t plane, double ridge) {
  const at::Tensor diagonal_C = sensitivity_CC(sensitivity, plane).diagonal().contiguous();
  const double* const data = diagonal_C.const_data_ptr<double>();
  std::vector<double> dearness(data, data + diagonal_C.numel());
  const kv::Turns& turns = samples.kept_turns();
  const kv::TurnTable* const table = plane % 2 == 0 ? turns.of(plane / 2) : nullptr;
  const size_t num_pairs = table == nullptr ? 0 : table->cos_RT.size() / turns.num_tokens;
  for (size_t head = 0; head < dearness.size(); head += turns.head_size) {
    for (size_t i = head; i < head + num_pairs; ++i) {
      dearness[i] = dearness[i + num_pairs] = (dearness[i] + dearness[i + num_pairs]) / 2;
    }
  }
  const double mean =
      std::accumulate(dearness.begin(), dearness.end(), 0.0) / static_cast<double>(dearness.size());
  for (double& each : dearness) each = std::max(each + ridge * mean, 1e-30);
  return dearness;
}

/// A plane of which vectorwise levels are made.
struct PlaneToFit {
  std::vector<uint16_t> some_CN;
  std::vector<double> dearness_C;
  int16_t usual_scale = 0;

  /// From 0 to the usual scale so many steps of the size `step` / sqrt(dearness): what is dear is
  /// rounded finely.
  std::vector<float> steps_C(double step) const {
    std::vector<float> steps;
    for (const double dearness : dearness_C) {
      const double wanted = double{kv::scale_of(usual_scale)} * std::sqrt(dearness) / step;
      steps.push_back(
          static_cast<float>(std::clamp<double>(wanted, kv::kLeastSteps, kv::kMostSteps)));
    }
    return steps;
  }
};

void fit_vectorwise(const Samples& samples, const Sensitivity& sensitivity,
                    const FitOptions& options, kv::Profile& profile) {
  constexpr size_t kTexts = 3;
  std::vector<PlaneToFit> planes;
  for (size_t p = 0; p < profile.num_planes(); ++p) {
    PlaneToFit& plane = planes.emplace_back();
    plane.some_CN = plane_of(samples, p, kTexts);
    plane.dearness_C = dearness_of(samples, sensitivity, p, options.ridge);
    const double typical = typical_scale(plane.some_CN, plane.dearness_C.size());
    plane.usual_scale = std::max<int16_t>(1, kv::scale_number(static_cast<float>(typical)));
  }
  const auto bits_with = [&](double step) {
    double bits = 0;
    double count = 0;
    for (const PlaneToFit& plane : planes) {
      bits += kv::fit_vectorwise(plane.some_CN, plane.steps_C(step), plane.usual_scale).bits;
      count += static_cast<double>(plane.some_CN.size());
    }
    return bits / count;
  };
  for (const double bits : options.vectorwise_bits) {
    const double step = step_where(bits_with, bits, 12);
    kv::VectorwiseLevel& level = profile.vectorwise.emplace_back();
    for (size_t p = 0; p < planes.size(); ++p) {
      const std::vector<float> steps_C = planes[p].steps_C(step);
      const auto plane_CN = plane_of(samples, p, samples.num_texts());
      level.planes_P.push_back(kv::fit_vectorwise(plane_CN, steps_C, planes[p].usual_scale).plane);
      level.steps_PC.insert(level.steps_PC.end(), steps_C.begin(), steps_C.end());
    }
  }
}

}  // namespace

kv::Profile fit_profile(const model::Model& model, const std::string& digest,
                        std::span<const std::vector<int64_t>> texts, const Sensitivity& sensitivity,
                        const FitOptions& options, const std::function<void()>& done) {
  const at::NoGradGuard no_grad;
  const weights::ModelConfig& config = model.config();
  ATOLL_CHECK(!texts.empty() && options.group_layers > 0 && !options.vectorwise_bits.empty());
  kv::Profile profile{
      .model = digest,
      .num_layers = static_cast<int32_t>(config.num_layers),
      .num_channels = static_cast<uint32_t>(config.num_kv_heads * config.head_size()),
      .means_PC = {},
      .groups = groups_of(config.num_layers, options.group_layers),
      .vectorwise = {},
      .transforms = {}};
  const int64_t length = std::ssize(texts.front());
  Samples samples(config, profile.groups, length);
  for (const std::vector<int64_t>& ids : texts) {
    ATOLL_CHECK(std::ssize(ids) == length);
    model::KvCache cache = model.kv_cache();
    model.hidden_BTC(at::tensor(ids, at::kLong).unsqueeze(0), cache);
    samples.add(planes_of(cache, {0, config.num_layers}, length));
    if (done) done();
  }
  profile.means_PC = samples.means_PC();
  fit_transforms(samples, sensitivity, options, profile);
  fit_vectorwise(samples, sensitivity, options, profile);
  return profile;
}

}  // namespace atl::kv_model
