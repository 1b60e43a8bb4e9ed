#include "atoll/kv/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"

namespace atl::kv {
namespace {

constexpr uint32_t kMagic = 0x504b5441;
constexpr uint16_t kVersion = 2;
constexpr size_t kMaxModelName = 256;
constexpr int32_t kMaxLayers = 4096;
constexpr uint32_t kMaxChannels = 1 << 16;
constexpr uint32_t kMaxLevels = 16;

void put_tables(ByteWriter& writer, std::span<ValueTable> tables) {
  Bytes bytes;
  for (ValueTable& table : tables) table.write(bytes);
  writer.put_bytes(bytes);
}

std::vector<ValueTable> get_tables(ByteReader& in, size_t count) {
  std::vector<ValueTable> tables;
  for (size_t i = 0; i < count; ++i) tables.push_back(ValueTable::read(in));
  return tables;
}

void put_vectorwise(ByteWriter& writer, VectorwiseLevel& level) {
  put_floats(writer, level.steps_PC);
  for (VectorwisePlane& plane : level.planes_P) {
    writer.put(plane.mode).put(plane.usual_scale);
    put_tables(writer, plane.tables_C);
    put_tables(writer, plane.anchors_C);
  }
}

VectorwiseLevel get_vectorwise(ByteReader& in, size_t num_planes, size_t num_channels) {
  VectorwiseLevel level{.steps_PC = get_floats(in, num_planes * num_channels), .planes_P = {}};
  const auto is_impossible = [](float steps) { return steps < kLeastSteps || steps > kMostSteps; };
  if (std::ranges::any_of(level.steps_PC, is_impossible)) {
    throw InputError("a level has an impossible number of steps");
  }
  for (size_t p = 0; p < num_planes; ++p) {
    VectorwisePlane plane{.mode = in.get<VectorwiseMode>(),
                          .usual_scale = in.get<int16_t>(),
                          .tables_C = {},
                          .anchors_C = {}};
    if (plane.usual_scale < 0 || plane.usual_scale > kMostScale) {
      throw InputError("a level has a scale beyond all");
    }
    const bool is_anchored = plane.mode == VectorwiseMode::kAnchored;
    if (!is_anchored && plane.mode != VectorwiseMode::kDirect) {
      throw InputError("a level has planes of an unknown mode");
    }
    plane.tables_C = get_tables(in, num_channels);
    if (is_anchored) plane.anchors_C = get_tables(in, num_channels);
    level.planes_P.push_back(std::move(plane));
  }
  return level;
}

void put_group_level(ByteWriter& writer, GroupLevel& level) {
  writer.put(level.num_components).put(level.step.step);
  put_floats(writer, level.step.means);
  put_tables(writer, level.tables_R);
}

GroupLevel get_group_level(ByteReader& in, const Group& group) {
  GroupLevel level{.num_components = in.get<uint32_t>(), .step = {}, .tables_R = {}};
  const std::vector<float> numbers = get_floats(in, 3);
  level.step = {.step = numbers[0], .means = {numbers[1], numbers[2]}};
  const bool is_possible = level.num_components <= group.transform.num_components() &&
                           level.step.step > 0 && numbers[1] >= 0 && numbers[1] <= 1 &&
                           numbers[2] >= 0 && numbers[2] <= 2;
  if (!is_possible) throw InputError("a level has impossible steps or components");
  level.tables_R = get_tables(in, level.num_components);
  return level;
}

std::vector<Group> get_groups(ByteReader& in, const Profile& profile) {
  std::vector<Group> groups;
  const auto count = in.get<uint32_t>();
  if (count > profile.num_planes()) throw InputError("it has more groups than planes");
  std::vector<uint8_t> is_taken(profile.num_planes());
  for (uint32_t i = 0; i < count; ++i) {
    Group group{.first_layer = in.get<int32_t>(), .end_layer = in.get<int32_t>()};
    const auto part = in.get<uint8_t>();
    if (group.first_layer < 0 || group.end_layer <= group.first_layer ||
        group.end_layer > profile.num_layers || part > 1) {
      throw InputError("it has groups of impossible layers");
    }
    group.has_values = part == 1;
    for (int32_t layer = group.first_layer; layer < group.end_layer; ++layer) {
      if (std::exchange(is_taken[group.plane_of(layer)], 1) != 0) {
        throw InputError("it has two groups with one plane");
      }
    }
    const auto num_layers = static_cast<size_t>(group.end_layer - group.first_layer);
    group.transform = GroupTransform::read(in, num_layers * profile.num_channels);
    groups.push_back(std::move(group));
  }
  return groups;
}

Profile read_body(ByteReader& in) {
  if (in.get<uint32_t>() != kMagic) throw InputError("it does not begin as one");
  if (const auto version = in.get<uint16_t>(); version != kVersion) {
    throw InputError(
        fmt::format("it is of version {}, and this Atoll reads {}", version, kVersion));
  }
  Profile profile;
  profile.model = in.get_string(kMaxModelName);
  profile.num_layers = in.get<int32_t>();
  profile.num_channels = in.get<uint32_t>();
  if (profile.num_layers <= 0 || profile.num_layers > kMaxLayers || profile.num_channels == 0 ||
      profile.num_channels > kMaxChannels) {
    throw InputError("it is of impossible layers or channels");
  }
  profile.means_PC = get_floats(in, profile.num_planes() * profile.num_channels);
  profile.groups = get_groups(in, profile);
  const auto num_vectorwise = in.get<uint32_t>();
  const auto num_transforms = in.get<uint32_t>();
  if (num_vectorwise == 0 || num_vectorwise > kMaxLevels || num_transforms > kMaxLevels) {
    throw InputError("it has an impossible number of levels");
  }
  for (uint32_t i = 0; i < num_vectorwise; ++i) {
    profile.vectorwise.push_back(get_vectorwise(in, profile.num_planes(), profile.num_channels));
  }
  for (uint32_t i = 0; i < num_transforms; ++i) {
    TransformLevel& level = profile.transforms.emplace_back();
    for (const Group& group : profile.groups) level.groups.push_back(get_group_level(in, group));
  }
  in.expect_end();
  return profile;
}

}  // namespace

Bytes write_profile(Profile& profile) {
  ByteWriter writer;
  writer.put(kMagic).put(kVersion).put_string(profile.model);
  writer.put(profile.num_layers).put(profile.num_channels);
  put_floats(writer, profile.means_PC);
  writer.put(static_cast<uint32_t>(profile.groups.size()));
  for (const Group& group : profile.groups) {
    writer.put(group.first_layer).put(group.end_layer);
    writer.put(static_cast<uint8_t>(group.has_values ? 1 : 0));
    group.transform.write(writer);
  }
  writer.put(static_cast<uint32_t>(profile.vectorwise.size()));
  writer.put(static_cast<uint32_t>(profile.transforms.size()));
  for (VectorwiseLevel& level : profile.vectorwise) put_vectorwise(writer, level);
  for (TransformLevel& level : profile.transforms) {
    for (GroupLevel& group : level.groups) put_group_level(writer, group);
  }
  Bytes bytes = writer.take();
  const uint64_t checksum = xxh3(bytes.data(), bytes.size());
  const auto last = std::as_bytes(std::span(&checksum, 1));
  bytes.insert(bytes.end(), last.begin(), last.end());
  return bytes;
}

Profile read_profile(std::span<const std::byte> bytes) {
  try {
    if (bytes.size() < sizeof(uint64_t)) throw InputError("it is cut short");
    const auto said = bytes.first(bytes.size() - sizeof(uint64_t));
    if (ByteReader(bytes.subspan(said.size())).get<uint64_t>() != xxh3(said.data(), said.size())) {
      throw InputError("its checksum is not that of its bytes");
    }
    ByteReader in(said);
    return read_body(in);
  } catch (const InputError& error) {
    throw InputError(fmt::format(
        "this is no whole profile of keys and values: {}; make it again with `atoll kv fit`",
        error.what()));
  }
}

uint64_t profile_id(std::span<const std::byte> bytes) {
  return std::max<uint64_t>(1, xxh3(bytes.data(), bytes.size()));
}

}  // namespace atl::kv
