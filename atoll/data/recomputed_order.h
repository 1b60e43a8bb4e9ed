#pragma once
// A published order, recomputed: the arrays that its project keeps in files, and its rows.
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "atoll/data/index_map.h"

namespace atl::data {

struct OrderArguments {
  std::vector<std::string> inputs;
  std::string kind;
  int64_t sequence_length = 0;  // 0: not given.
  uint64_t seed = 0;
  // NeoX.
  int64_t samples = 0;
  std::string split = "969,30,1";
  std::string part = "train";
  std::vector<double> weights;
  int64_t documents = 0;
  int64_t tokens = 0;
  bool old_names = false;
  // OLMo and OLMo-core.
  int64_t num_rows = 0;
  std::string dtype;
  int64_t epoch = -1;  // Not given: the first.
  int64_t world_size = 1;
  bool drop_last = false;
  int64_t chunk_rows = 1;
  int64_t batch_rows = 0;
};

struct RecomputedOrder {
  struct File {
    std::string name;  // As the project names it, without a folder.
    std::shared_ptr<const data::IndexMap> map;
  };
  std::vector<File> files;
  int64_t num_rows = 0;
  /// A row (from 0) as JSON: where its tokens come from and, where the files are there, its ids.
  std::function<nlohmann::ordered_json(int64_t row)> row;
};

/// Throws UsageError where the arguments do not say what the kind needs, InputError at bad files.
RecomputedOrder recompute_neox(const OrderArguments& arguments);
RecomputedOrder recompute_olmo(const OrderArguments& arguments);

}  // namespace atl::data
