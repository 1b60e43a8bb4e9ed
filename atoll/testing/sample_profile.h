#pragma once
// A small profile of keys and values that nothing was fitted to, for tests and fuzzers of lossy
// levels.
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "atoll/kv/profile.h"
#include "atoll/kv/turns.h"

namespace atl::kv {

inline constexpr int32_t kLayers = 4;
inline constexpr uint32_t kChannels = 8;
inline constexpr size_t kHeadSize = 4;
inline constexpr float kStep = 0.5;

inline Turns turns_for(size_t num_tokens) {
  Turns turns{.num_tokens = num_tokens,
              .head_size = kHeadSize,
              .tables = {TurnTable()},
              .table_of_layer = {0, 0, -1, 0}};
  for (size_t pair = 0; pair < kHeadSize / 2; ++pair) {
    for (size_t t = 0; t < num_tokens; ++t) {
      const double angle = static_cast<double>(t) / std::pow(30.0, static_cast<double>(pair));
      turns.tables[0].cos_RT.push_back(static_cast<float>(std::cos(angle)));
      turns.tables[0].sin_RT.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return turns;
}

/// Rows of cosines, which are orthonormal, and of falling variance below.
inline GroupTransform cosines(size_t size) {
  std::vector<float> forward_RM(size * size);
  std::vector<float> inverse_MR(size * size);
  const auto n = static_cast<double>(size);
  for (size_t r = 0; r < size; ++r) {
    for (size_t m = 0; m < size; ++m) {
      const double length = std::sqrt((r == 0 ? 1 : 2) / n);
      const double value = length * std::cos(std::numbers::pi * (static_cast<double>(m) + 0.5) *
                                             static_cast<double>(r) / n);
      forward_RM[r * size + m] = static_cast<float>(value);
      inverse_MR[m * size + r] = static_cast<float>(value);
    }
  }
  return {forward_RM, inverse_MR, std::vector<float>(size, 100)};
}

inline ValueTable wide_table() {
  std::vector<uint32_t> counts;
  for (int i = -12; i <= 12; ++i) counts.push_back(static_cast<uint32_t>(1000 / (1 + i * i)));
  return {static_cast<int16_t>(-12), counts};
}

inline Profile profile_of(const std::string& model) {
  Profile profile{.model = model,
                  .num_layers = kLayers,
                  .num_channels = kChannels,
                  .means_PC = std::vector<float>(2 * kLayers * kChannels, 0.25F),
                  .groups = {},
                  .vectorwise = {},
                  .transforms = {}};
  for (const int32_t first : {0, 2}) {
    for (const bool has_values : {false, true}) {
      profile.groups.push_back({.first_layer = first,
                                .end_layer = first + 2,
                                .has_values = has_values,
                                .transform = cosines(2 * kChannels)});
    }
  }
  const std::vector<ValueTable> tables(kChannels, wide_table());
  profile.vectorwise.push_back(
      {.steps_PC = std::vector<float>(2 * kLayers * kChannels, 15),
       .planes_P = std::vector<VectorwisePlane>(2 * kLayers, {.tables_C = tables})});
  profile.vectorwise.front().planes_P[3] = {.mode = VectorwiseMode::kAnchored,
                                            .usual_scale = 801,
                                            .tables_C = tables,
                                            .anchors_C = tables};
  for (const uint32_t num_components : {16U, 11U}) {
    const GroupLevel level{.num_components = num_components,
                           .step = {.step = kStep, .means = {0.9F, 1.9F}},
                           .tables_R = std::vector<ValueTable>(num_components, wide_table())};
    profile.transforms.push_back({.groups = std::vector<GroupLevel>(4, level)});
  }
  return profile;
}

/// A profile as it is read back, and what names it.
struct SampleProfile {
  explicit SampleProfile(const std::string& model = "m") {
    Profile made = profile_of(model);
    bytes = write_profile(made);
    profile = read_profile(bytes);
    id = profile_id(bytes);
  }
  Bytes bytes;
  Profile profile;
  uint64_t id = 0;
};

}  // namespace atl::kv
