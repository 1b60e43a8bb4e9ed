#pragma once
// The picture of a fit. Pure.
#include "atoll/scaling/chart.h"
#include "atoll/scaling/fit.h"

namespace atl::scaling {

/// Laws, points, and where a new run would fall with that probability.
Chart fit_chart(const FitReport& report, double confidence);

}  // namespace atl::scaling
