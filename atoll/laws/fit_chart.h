#pragma once
// The picture of a fit. Pure.
#include "atoll/laws/chart.h"
#include "atoll/laws/fit.h"

namespace atl::laws {

/// Laws, points, and where a new run would fall with that probability.
Chart fit_chart(const FitReport& report, double confidence);

}  // namespace atl::laws
