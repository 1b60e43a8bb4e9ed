// The table of methods against the settings and the rules that read it.
#include "atoll/sync/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/sync/topology.h"

namespace atl::sync {
namespace {

TEST(MethodTest, TheTableAndTheSettingsNameTheSameFields) {
  SyncOptions options;
  SettingList list;
  options.visit(list);
  std::set<std::string_view> used = {"method", "codec", "exchange_share", "layer_metrics"};
  for (const Method& method : methods()) {
    used.insert(method.settings.begin(), method.settings.end());
  }
  std::set<std::string_view> fields;
  for (const Setting& setting : list.settings()) fields.insert(setting.key);
  EXPECT_EQ(used, fields);
}

TEST(MethodTest, EachRunsWithItsDefaults) {
  for (const Method& method : methods()) {
    SCOPED_TRACE(method.name);
    const SyncOptions options{.method = std::string(method.name)};
    EXPECT_EQ(&method_of(options), &method);
    EXPECT_NO_THROW(check(options));
  }
  EXPECT_EQ(method_of({}).name, "diloco");
}

/// What a sparse codec leaves out would be lost in a second encoding, where nobody keeps it.
TEST(MethodTest, ValuesThatAreKeptByTheirSenderAreEncodedOnce) {
  using enum collective::Topology;
  const auto route = [](const std::string& method, const char* codec) {
    return topology_of({.method = method}, *codec::make_codec(codec), 8);
  };
  for (const char* name : {"data_parallel", "sparse_loco", "demo"}) {
    EXPECT_EQ(route(name, "topk(0.1)+fp32"), kGather) << name;
    EXPECT_EQ(route(name, "fp32"), kScatter) << name;
  }
  EXPECT_EQ(route("data_parallel", "int8"), kScatter);
  EXPECT_EQ(route("streaming_diloco", "int8"), kGather);
  EXPECT_EQ(route("cocktail_sgd", "cocktail"), kScatter);  // Owners keep a residual of their own.
}

TEST(MethodTest, StepsApartFollowFromPeriodAndOverlap) {
  const auto apart = [](const std::string& method) {
    return max_steps_apart({.method = method, .sync_every = 20, .fragment_sync_delay = 1});
  };
  for (const char* name : {"single", "data_parallel", "demo"}) EXPECT_EQ(apart(name), 1) << name;
  EXPECT_EQ(apart("cocktail_sgd"), 2);
  EXPECT_EQ(apart("diloco"), 20);
  EXPECT_EQ(apart("sparse_loco"), 20);
  EXPECT_EQ(apart("streaming_diloco"), 21);
  EXPECT_EQ(apart("eager_diloco"), 40);
}

}  // namespace
}  // namespace atl::sync
