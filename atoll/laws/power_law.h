#pragma once
// The power laws of Scaling Laws for DiLoCo, section 4: y = A N^alpha for one number of replicas M,
// y = A N^alpha M^beta for all. y is a loss, a batch or a learning rate. Plain values.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/laws/least_squares.h"

namespace atl::laws {

struct Point {
  double params = 0;
  double replicas = 0;  // 0: data-parallel; joint laws have none of these.
  double value = 0;
};

/// What was asked for and cannot be had, and why.
struct Refusal {
  std::string what;
  std::string reason;
};

class PowerLaw {
 public:
  /// `fit` has the columns 1, ln N and, when joint, ln M.
  explicit PowerLaw(LogLinearFit fit) : fit_(std::move(fit)) {}

  bool joint() const { return fit_.coefficients().size() == 3; }
  double A() const;
  double alpha() const { return fit_.coefficients()[1]; }
  /// 0 when not joint.
  double beta() const { return joint() ? fit_.coefficients()[2] : 0; }
  double predict(double params, double replicas) const;
  /// Where a new run's value falls with that probability.
  Interval interval(double params, double replicas, double confidence) const;
  const LogLinearFit& fit() const { return fit_; }

 private:
  LogLinearFit fit_;
};

/// Power laws fitted to one quantity.
struct PowerLaws {
  std::map<double, PowerLaw> independent;  // By the number of replicas.
  std::optional<PowerLaw> joint;           // Of replicas >= 1.
  std::vector<Refusal> refused;

  const PowerLaw* of(double replicas) const;
};

constexpr size_t kMinSizes = 3;  // Two only draw the line through themselves.

/// The law through the points, whatever their number; nothing when they do not determine it.
std::optional<PowerLaw> fit_power_law(const std::vector<Point>& points, bool joint);

/// Fits what the points allow, with a row to spare. `quantity` begins the name of what is refused.
PowerLaws fit_power_laws(const std::vector<Point>& points, const std::string& quantity);

/// A sentence for each law of a loss that grows with size.
std::vector<std::string> growth_warnings(const PowerLaws& laws);

struct Residual {
  double params = 0;
  double value = 0;
};

/// |ln y - ln y'| of each number of replicas at the largest size, y' from the laws fitted without
/// that size.
struct LeaveOneOut {
  double params = 0;                     // The size left out of replicas >= 1; 0: too few sizes.
  std::map<double, double> independent;  // Of replicas >= 1.
  std::map<double, double> joint;
  /// Apart from the others, with which it does not compare: its largest size is its own.
  std::optional<Residual> data_parallel;
  std::vector<Refusal> refused;
};
LeaveOneOut leave_one_out(const std::vector<Point>& points);

/// The points without those of the largest size, and those.
struct HeldOut {
  double params = 0;
  std::vector<Point> kept;
  std::vector<Point> out;
};
HeldOut hold_out_largest(const std::vector<Point>& points);

/// Those with replicas >= 1.
std::vector<Point> with_replicas(const std::vector<Point>& points);

/// What to say of a law of a loss that grows with size; empty: it falls.
std::string growth_warning(const PowerLaw& law, const std::string& name);

/// "data-parallel", "2 replicas".
std::string replicas_name(double replicas);

}  // namespace atl::laws
