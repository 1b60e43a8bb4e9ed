#pragma once
// What a sweep is asked for: sizes, and grids of settings to train them with. SWEEP.toml, read
// strictly. Plain values; what the settings themselves may be is checked by sweep/sweep_settings.h.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/toml.h"
#include "atoll/laws/table.h"

namespace atl::sweep {

/// Which places of a grid are trained. All three then train the neighbours of the best one, until
/// the best has a neighbour on both sides of every swept axis.
enum class Search {
  kGrid,     // All of them.
  kDescent,  // One: the middle, or where the size before it ended.
  kHalving,  // All with few tokens, the best share with more, and so on.
};

/// The settings that are swept.
enum Axis : size_t { kLr, kOuterLr, kBatchTokens };
constexpr size_t kNumAxes = 3;
constexpr const char* kAxisNames[kNumAxes] = {"lr", "outer_lr", "batch_tokens"};

/// The values of one axis of a grid, ascending, or the best of an earlier grid. Neither: the grid's
/// methods do not use it.
struct AxisValues {
  std::vector<double> values;
  bool is_best = false;
};

struct Grid {
  std::string name;
  std::vector<std::string> sizes;
  std::vector<int64_t> replicas;     // 0: data-parallel.
  std::vector<std::string> methods;  // Of replicas >= 1.
  std::vector<int64_t> sync_every;   // Inner steps; of the methods that have it. May be empty.
  std::vector<double> tokens_factors;
  AxisValues axes[kNumAxes];
  std::vector<int64_t> seeds;
  Search search = Search::kGrid;
  bool starts_at_size_before = false;  // Descent: where the one of the size before it ended.
};

struct Size {
  std::string name;
  TomlTable settings;  // A document with [model] alone.
};

struct SweepSpec {
  double tokens_per_param = 20;
  bool papers_count = false;  // N is papers_params(), not the number of all parameters.
  int64_t extensions = 4;     // Values that may be added to an axis, at both ends together.
  int64_t halving_rungs = 3;
  int64_t halving_rate = 2;  // A rung's tokens are so many times the one before; its places a part.
  int64_t threads = 1;       // Of an island.
  TomlTable settings;        // Of all points, a document.
  std::optional<TomlTable> slurm;  // A document with [slurm] alone; nothing: this machine.
  std::vector<Size> sizes;         // In alphabetic order.
  std::vector<Grid> grids;         // In the order of the file.
};

constexpr size_t kMaxSweepBytes = size_t{1} << 20;
constexpr double kMaxGridPoints = 20'000;  // That one grid names, seeds and all.

/// `where` (a file) is for messages. Throws UsageError: what is no TOML, unknown keys (naming the
/// nearest), wrong types, values out of range, keys that contradict each other or have no effect.
SweepSpec parse_sweep(std::string_view text, const std::string& where);
SweepSpec read_sweep(const std::filesystem::path& file);

}  // namespace atl::sweep
