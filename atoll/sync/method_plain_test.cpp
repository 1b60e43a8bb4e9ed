// The table of methods against the settings and the rules that read it.
#include "atoll/sync/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/sync/options.h"

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
