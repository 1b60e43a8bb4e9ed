#include "atoll/openai/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace atl::openai {
namespace {

using testing::HasSubstr;

TEST(HistogramTest, BucketsCountWhatIsAtMostTheirBound) {
  constexpr std::array kBounds{1.0, 2.5};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 2.0, 9.0}) histogram.add(value);
  EXPECT_EQ(histogram.text("x", "Help."),
            "# HELP x Help.\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\nx_bucket{le=\"2.5\"} 3\n"
            "x_bucket{le=\"+Inf\"} 4\nx_sum 12.5\nx_count 4\n");
}

TEST(MetricsTest, TellsOfRequestsTimesAndModels) {
  Metrics metrics;
  metrics.count_request("/v1/completions", 200);
  metrics.count_request("/v1/completions", 200);
  metrics.add_gap(std::chrono::milliseconds(3));
  const std::string text =
      metrics.text({.num_running = 3, .num_waiting = 4, .models = {{"a\"b", {.kv_bytes = 7}}}});
  EXPECT_THAT(text,
              HasSubstr("atoll_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 2"));
  EXPECT_THAT(text, HasSubstr("atoll_inter_token_seconds_bucket{le=\"0.005\"} 1"));
  EXPECT_THAT(text, HasSubstr("atoll_running 3\n"));
  EXPECT_THAT(text, HasSubstr("atoll_waiting 4\n"));
  EXPECT_THAT(text, HasSubstr("atoll_kv_bytes{model=\"a\\\"b\"} 7"));
}

}  // namespace
}  // namespace atl::openai
