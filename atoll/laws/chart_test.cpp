#include "atoll/laws/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/testing/temporary_folder.h"

namespace atl::laws {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Chart small() {
  return {.title = "a < b & \"c\"",
          .x_label = "x",
          .y_label = "y",
          .series = {{.name = "one",
                      .line = {{1, 2}, {10, 3}},
                      .points = {{1, 2.1}},
                      .band = {{1, 1.5, 2.5}, {10, 2.5, 3.5}}}}};
}

TEST(Chart, HasLinesPointsAndBands) {
  EXPECT_THAT(chart_svg(small()),
              AllOf(HasSubstr("<polyline"), HasSubstr("<circle"), HasSubstr("<polygon"),
                    HasSubstr("a &lt; b &amp; &quot;c&quot;"), HasSubstr("</svg>")));
}

TEST(Chart, LeavesOutWhatNoAxisShows) {
  Chart chart = small();
  chart.series[0].points = {{0, 1}, {NAN, 1}, {5, INFINITY}};
  EXPECT_THAT(chart_svg(chart),
              AllOf(Not(HasSubstr("<circle")), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_THAT(chart_svg({}), Not(HasSubstr("nan")));
}

TEST(Chart, TheNameSaysTheKind) {
  EXPECT_THAT(chart_file(small(), "a.svg"), testing::StartsWith("<svg"));
  EXPECT_THAT(chart_file(small(), "a.html"), testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(message_of<UsageError>([] { chart_file(small(), "a.png"); }),
              HasSubstr(".svg or .html"));
}

}  // namespace
}  // namespace atl::laws
