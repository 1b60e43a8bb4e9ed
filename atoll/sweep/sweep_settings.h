#pragma once
// A sweep's points as runs: the settings of each, what makes two points the same, and what each
// will cost. Everything that `atoll train` would refuse is refused here, before anything starts.
// LibTorch-free. Plain values; no thread rule.
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/run/config.h"
#include "atoll/sweep/sweep_plan.h"

namespace atl::sweep {

/// What all points read.
struct SweepStore {
  std::filesystem::path path;
  std::string digest;      // Of its tokens; no path is in it.
  int64_t vocab_size = 0;  // Of its tokenizer.
};

/// The model of one size.
struct SweptModel {
  std::string name;
  weights::ModelConfig config;
  double params = 0;          // N, as the sweep counts.
  double num_parameters = 0;  // Of all.
};

class SweepSettings {
 public:
  /// `where` (the file) is for messages. Throws UsageError: a setting that does not exist, that the
  /// sweep sets itself or that no point has a use for, and whatever run::check() refuses of a size
  /// or of a point that a grid names.
  SweepSettings(SweepSpec spec, std::string where);

  const SweepSpec& spec() const { return spec_; }
  /// What is common to all points: data.path, train.sequence_length, ...
  const run::RunConfig& common() const { return common_; }
  /// Until then the vocabulary counts as data.vocab_size, and points have no keys. Throws
  /// UsageError when a size does not go with the store.
  void use(SweepStore store);
  /// Whether a point of this identity was trained on these data, as far as they are known.
  bool is_of_store(const std::map<std::string, std::string>& identity) const;

  const SweptModel& model(const std::string& size) const;
  PlanRules rules() const;

  /// Tokens that the point asks for; those of its whole steps.
  double tokens_wanted(const SweepPoint& point) const;
  double tokens(const SweepPoint& point) const;
  /// All settings, as `atoll train` takes them.
  run::RunConfig config(const SweepPoint& point) const;
  /// Why `atoll train` would refuse them; empty: it would not.
  std::string obstacle(const SweepPoint& point) const;

  /// Name -> value of every setting that changes the result, the data's digest among them; what the
  /// method or optimiser has no use for is left out, and what stands for another value is replaced
  /// by it. The same on every machine and in every folder.
  std::map<std::string, std::string> identity(const SweepPoint& point) const;

  /// Processes that train it, and what it keeps busy.
  static int64_t num_islands(const SweepPoint& point);
  int64_t cores(const SweepPoint& point) const;
  /// Of all its processes, before anything is measured.
  double expected_bytes(const SweepPoint& point) const;
  /// Floating-point operations of training: 6 for each parameter and token.
  double flops(const SweepPoint& point) const;

 private:
  run::RunConfig load(const std::string& size) const;
  void check_all() const;
  void check_order(const Grid& grid) const;

  SweepSpec spec_;
  std::string where_;
  SweepStore store_;
  run::RunConfig common_;
  std::vector<std::string> given_;  // Names of the settings in [settings].
  std::map<std::string, SweptModel> models_;
  std::map<std::string, run::RunConfig> configs_;  // By size.
};

/// SHA-256 of the identity, in hexadecimal: the key of a point.
std::string key_of(const std::map<std::string, std::string>& identity);

}  // namespace atl::sweep
