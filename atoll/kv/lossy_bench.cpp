// Encoding and decoding speed of a transform level, in elements per second of a core: the keys and
// values of five layers of 192 channels, whose components vary as those of a small model's do at
// some 1.2 bits an element.
#include <benchmark/benchmark.h>

#include <cmath>
#include <numbers>

#include "atoll/base/process.h"
#include "atoll/base/random.h"
#include "atoll/codec/float_bits.h"
#include "atoll/kv/blob.h"
#include "atoll/kv/tables.h"

namespace atl::kv {
namespace {

constexpr size_t kLayers = 5;
constexpr size_t kChannels = 192;
constexpr size_t kAll = kLayers * kChannels;
constexpr size_t kComponents = 540;
constexpr size_t kTokens = 2048;

/// Of components in steps, from 7 down to a quarter.
double deviation(size_t component) {
  return 7 * std::pow(0.25 / 7, static_cast<double>(component) / kComponents);
}

double cosine(size_t r, size_t m) {
  return std::sqrt((r == 0 ? 1.0 : 2.0) / kAll) *
         std::cos(std::numbers::pi * (static_cast<double>(m) + 0.5) * static_cast<double>(r) /
                  kAll);
}

struct World {
  Profile profile;
  Turns turns;
  BlobHead head;
  std::vector<uint16_t> kv_PCT;
  Bytes blob;

  Lossy lossy() const { return {profile, 1, turns}; }
};

GroupLevel level_of() {
  GroupLevel level{
      .num_components = kComponents, .step = {.step = 1, .means = {0.95F, 1.95F}}, .tables_R = {}};
  for (size_t r = 0; r < kComponents; ++r) {
    std::vector<int16_t> numbers;
    for (size_t i = 0; i < 4000; ++i) {
      const double value = deviation(r) * random_normal(1, r, i);
      numbers.push_back(component_number(static_cast<float>(value), 1));
    }
    level.tables_R.push_back(fit_table(numbers).table);
  }
  return level;
}

GroupTransform transform_of() {
  std::vector<float> forward_RM;
  std::vector<float> inverse_MR(kAll * kComponents);
  for (size_t r = 0; r < kComponents; ++r) {
    for (size_t m = 0; m < kAll; ++m) {
      forward_RM.push_back(static_cast<float>(cosine(r, m)));
      inverse_MR[m * kComponents + r] = forward_RM.back();
    }
  }
  return {forward_RM, inverse_MR, std::vector<float>(kAll, 100)};
}

/// The level's own means of random components: then they are as large as they are meant to be.
std::vector<uint16_t> drawn(const World& world) {
  std::vector<uint16_t> kv_PCT(world.head.num_values());
  const size_t size = kChannels * kTokens;
  for (size_t part = 0; part < 2; ++part) {
    std::vector<int16_t> numbers_RT;
    for (size_t r = 0; r < kComponents; ++r) {
      for (size_t t = 0; t < kTokens; ++t) {
        const double value = deviation(r) * random_normal(2 + part, r, t);
        numbers_RT.push_back(component_number(static_cast<float>(value), 1));
      }
    }
    const GroupLevel& level = world.profile.transforms[0].groups[part];
    Bytes bytes;
    encode_values(numbers_RT, level.tables_R, bytes);
    ByteReader in(bytes);
    std::vector<float> y_MT(kAll * kTokens);
    world.profile.groups[part].transform.decode(in, level, y_MT);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      turn_again(std::span(y_MT).subspan(layer * size, size), world.turns,
                 part == 0 ? world.turns.of(layer) : nullptr, world.profile.means_of(0),
                 std::span(kv_PCT).subspan((2 * layer + part) * size, size));
    }
  }
  return kv_PCT;
}

const World& world() {
  static const World made = [] {
    keep_freed_memory();  // As programs do.
    World world;
    world.profile = {.model = "m",
                     .num_layers = kLayers,
                     .num_channels = kChannels,
                     .means_PC = std::vector<float>(2 * kAll),
                     .groups = {},
                     .vectorwise = {},
                     .transforms = std::vector<TransformLevel>(1)};
    const GroupTransform transform = transform_of();
    for (const bool has_values : {false, true}) {
      world.profile.groups.push_back({.first_layer = 0,
                                      .end_layer = kLayers,
                                      .has_values = has_values,
                                      .transform = transform});
      world.profile.transforms[0].groups.push_back(level_of());
    }
    const std::vector<ValueTable> tables(kChannels, ValueTable(0, std::vector<uint32_t>{1}));
    world.profile.vectorwise.push_back(
        {.steps_PC = std::vector<float>(2 * kAll, 1),
         .planes_P = std::vector<VectorwisePlane>(2 * kLayers, {.tables_C = tables})});
    world.turns = {.num_tokens = kTokens,
                   .head_size = 64,
                   .tables = {TurnTable()},
                   .table_of_layer = std::vector<int32_t>(kLayers, 0)};
    for (size_t i = 0; i < 32 * kTokens; ++i) {
      const auto angle = static_cast<double>(i);
      world.turns.tables[0].cos_RT.push_back(static_cast<float>(std::cos(angle)));
      world.turns.tables[0].sin_RT.push_back(static_cast<float>(std::sin(angle)));
    }
    world.head = {.level = Level::kTransform,
                  .model = "m",
                  .first_layer = 0,
                  .end_layer = kLayers,
                  .num_channels = kChannels,
                  .begin = 0,
                  .num_tokens = kTokens};
    world.kv_PCT = drawn(world);
    world.blob = encode_blob(world.head, world.kv_PCT, world.lossy(), {});
    return world;
  }();
  return made;
}

void count(benchmark::State& state) {
  const auto elements = static_cast<double>(world().head.num_values());
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(elements));
  state.counters["bits"] = 8 * static_cast<double>(world().blob.size()) / elements;
}

void encode(benchmark::State& state) {
  const World& w = world();
  for (auto iteration : state) {
    benchmark::DoNotOptimize(encode_blob(w.head, w.kv_PCT, w.lossy(), {}).data());
  }
  count(state);
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const World& w = world();
  for (auto iteration : state) {
    benchmark::DoNotOptimize(decode_blob(w.blob, w.head, w.lossy()).data());
  }
  count(state);
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace atl::kv
