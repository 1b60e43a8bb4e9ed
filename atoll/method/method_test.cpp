// The table of methods against the settings and the rules that read it.
#include "atoll/method/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/method/topology.h"

namespace atl::method {
namespace {

TEST(MethodTest, TheTableAndTheSettingsNameTheSameFields) {
  SyncOptions options;
  SettingList list;
  options.visit(list);
  std::set<std::string_view> used = {"method", "codec", "layer_metrics"};
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

TEST(MethodTest, AMethodGetsTheSettingsOfItsPaper) {
  const auto codec = [](const std::string& method) { return codec_name({.method = method}); };
  EXPECT_EQ(codec("streaming_diloco"), "e3m0");  // arXiv 2501.18512
  EXPECT_EQ(codec("sparse_loco"), "sparse_loco");
  EXPECT_EQ(codec("cocktail_sgd"), "cocktail");
  for (const char* name : {"single", "data_parallel", "diloco", "eager_diloco", "delayed_diloco"}) {
    EXPECT_EQ(codec(name), "fp32") << name;
  }
  EXPECT_EQ(codec_name({.method = "streaming_diloco", .codec = "int8"}), "int8");
  EXPECT_EQ(outer_lr({.method = "sparse_loco"}), 1);  // arXiv 2508.15706
  for (const char* name : {"diloco", "streaming_diloco", "eager_diloco", "delayed_diloco"}) {
    EXPECT_EQ(outer_lr({.method = name}), 0.7) << name;
  }
  EXPECT_EQ(outer_lr({.method = "sparse_loco", .outer_lr = 0.7}), 0.7);
  EXPECT_EQ(outer_lr({.method = "sparse_loco", .outer_lr = 0}), 0);
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
}  // namespace atl::method
