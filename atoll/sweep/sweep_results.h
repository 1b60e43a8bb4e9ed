#pragma once
// What a sweep found: its points as tables that `atoll scaling fit` reads, a law for each family of
// cells, and the largest size predicted without it. Pure.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/laws/comparable.h"
#include "atoll/laws/fit.h"
#include "atoll/sweep/sweep_plan.h"

namespace atl::sweep {

/// What a table says of a size and its points.
struct SizeNumbers {
  double params = 0;  // As the sweep counts them.
  double layers = 0;
  double hidden = 0;
  double ff = 0;
  double vocab = 0;
};
struct ResultRules {
  std::function<SizeNumbers(const std::string& size)> size;
  std::function<double(const SweepPoint&)> tokens;  // That it was trained on.
};

/// The largest size from a law fitted without it.
struct HeldOutLoss {
  std::string size;
  double params = 0;
  double replicas = 0;
  double trained = 0;
  std::optional<double> independent;  // Predicted, by the law of that number of replicas.
  std::optional<double> joint;
};

/// Cells that a law can be fitted through: of one method, sync_every and tokens factor, with the
/// data-parallel ones of that factor.
struct Family {
  laws::RunKind kind;           // Its tokens: beside the sweep's usual ones.
  std::string name;             // "diloco-H30", "diloco-H30-x4"; as files are called.
  std::vector<laws::Run> all;   // Every finished point on all tokens, with its seed.
  std::vector<laws::Run> best;  // Each cell's, averaged over seeds; of its last grid.
  /// Loss from `best`, optima of batch and rates from `all`. Nothing: too few sizes.
  std::optional<laws::FitReport> fit;
  std::vector<HeldOutLoss> held_out;
};

/// The families in the order of the file; that of the most sizes comes first.
std::vector<Family> families_of(const SweepState& state, const ResultRules& rules,
                                const Known& known, const laws::FitOptions& options);

}  // namespace atl::sweep
