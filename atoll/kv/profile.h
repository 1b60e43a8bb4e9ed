#pragma once
// What was fitted to a model's keys and values before, on real text: how its lossy levels round,
// and how often which number comes. Whoever reads a blob of such a level has the same profile.
//
// Shapes: P = planes (of each layer the keys, then the values), C = channels of a plane.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/group_transform.h"
#include "atoll/kv/vectorwise_coder.h"

namespace atl::kv {

/// Layers whose keys, or values, are transformed together.
struct Group {
  int32_t first_layer = 0;
  int32_t end_layer = 0;
  bool has_values = false;  // Else keys.
  GroupTransform transform;

  size_t plane_of(int32_t layer) const {
    return 2 * static_cast<size_t>(layer) + (has_values ? 1 : 0);
  }
};

struct VectorwiseLevel {
  std::vector<float> steps_PC;
  std::vector<VectorwisePlane> planes_P;

  std::span<const float> steps_of(size_t plane) const {
    const size_t num_channels = steps_PC.size() / planes_P.size();
    return std::span(steps_PC).subspan(plane * num_channels, num_channels);
  }
};

struct TransformLevel {
  std::vector<GroupLevel> groups;  // As Profile::groups.
};

struct Profile {
  std::string model;  // As BlobHead::model.
  int32_t num_layers = 0;
  uint32_t num_channels = 0;
  std::vector<float> means_PC;  // Of keys that are turned back, and of values.
  std::vector<Group> groups;
  // From the one that loses least to the one that is smallest. The vectorwise ones are one at
  // least: it is for layers whose group is not whole, too.
  std::vector<VectorwiseLevel> vectorwise;
  std::vector<TransformLevel> transforms;

  size_t num_planes() const { return 2 * static_cast<size_t>(num_layers); }
  std::span<const float> means_of(size_t plane) const {
    return std::span(means_PC).subspan(plane * num_channels, num_channels);
  }
};

/// magic u32 "ATKP", version u16, then what write_profile() says, last a checksum. Tables are
/// rounded: the profile becomes what is read back.
Bytes write_profile(Profile& profile);

/// Throws InputError where it is none.
Profile read_profile(std::span<const std::byte> bytes);

/// What blobs name it by: a hash of its bytes, never 0.
uint64_t profile_id(std::span<const std::byte> bytes);

}  // namespace atl::kv
