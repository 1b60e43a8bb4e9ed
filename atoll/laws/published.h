#pragma once
// What Scaling Laws for DiLoCo (arXiv 2503.09799) publishes and cannot be fitted again, because its
// sweeps are not published; and its table of losses, which can. Constants.
#include <array>
#include <vector>

#include "atoll/laws/table.h"

namespace atl::laws {

constexpr double kAllNumbers = -1;  // In place of a number of replicas.

/// A N^alpha M^beta, N as papers_params() counts.
struct PublishedLaw {
  double replicas;  // 0: data-parallel; kAllNumbers: of all numbers, with beta.
  double A;
  double alpha;
  double beta = 0;

  double predict(double params, double at_replicas) const;
};

/// Tables 8 and 10: the peak inner learning rate.
constexpr std::array<PublishedLaw, 6> kPublishedInnerLr = {{{0, 16319.2, -0.819},
                                                            {1, 74620.6, -0.945},
                                                            {2, 3978.82, -0.78},
                                                            {4, 4512.99, -0.789},
                                                            {8, 618986, -1.102},
                                                            {kAllNumbers, 22256, -0.8827, 0.2929}}};

/// Tables 9 and 10: the global batch in sequences of 2,048 tokens. The paper's text says tokens;
/// its figures, and the sizes, say sequences.
constexpr std::array<PublishedLaw, 6> kPublishedBatch = {{{0, 0.22592, 0.281},
                                                          {1, 0.01361, 0.435},
                                                          {2, 0.00769, 0.479},
                                                          {4, 0.00535, 0.51},
                                                          {8, 0.01859, 0.455},
                                                          {kAllNumbers, 0.00709, 0.4695, 0.3399}}};
constexpr double kPublishedBatchUnit = 2048;  // Tokens.

/// Figure 7: the best outer rate from 335M parameters on (H = 30, Nesterov momentum 0.9); it does
/// not change with size there.
struct PublishedOuterRate {
  double replicas;
  double outer_lr;
};
constexpr std::array<PublishedOuterRate, 4> kPublishedOuterRates = {
    {{1, 0.4}, {2, 0.6}, {4, 0.6}, {8, 0.8}}};

/// Half a step of the sweeps' grids, as a factor or, for the outer rate, a difference: powers of
/// sqrt(2), powers of 2, multiples of 0.2.
constexpr double kPublishedLrStep = 1.189207115002721;
constexpr double kPublishedBatchStep = 1.4142135623730951;
constexpr double kPublishedOuterStep = 0.1;

/// What longer periods cost: ln of the loss rises by this * M^power for each unit of ln H. From
/// Streaming DiLoCo (arXiv 2501.18512), tables 5 and 6: 100 steps beside 30, six sizes, 2 replicas
/// (0.00565) and 4 (0.00923).
constexpr double kPublishedPeriodCost = 0.003466;
constexpr double kPublishedPeriodPower = 0.7063;

/// Table 4, atoll/laws/published/loss.csv.
const std::vector<Run>& published_losses();

}  // namespace atl::laws
