#pragma once
// The orders in which OLMo and OLMo-core visit the rows ("instances") of their token files: raw
// arrays without a header, each cut into rows of equal length, the tail of each file dropped. Pure
// functions but for OlmoFiles, which may be read by threads.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/file.h"
#include "atoll/data/index_map.h"

namespace atl::data {

struct OlmoOptions {
  int64_t num_rows = 0;  // Below 2^32 - 1.
  uint64_t seed = 0;
  int64_t epoch = 0;  // OLMo counts from 0, OLMo-core from 1.
};

/// OLMo's global_indices.npy: shuffled by PCG64(seed + epoch), then made a multiple of the
/// `world_size`: cut (`drop_last`), or filled up from the beginning. Throws UsageError at an option
/// out of range, InputError when no row is left; so does olmo_core_order().
IndexMap olmo_order(const OlmoOptions& options, int64_t world_size, bool drop_last);

struct OlmoCoreOptions {
  int64_t chunk_rows = 1;  // Rows that stay together; chunks are shuffled.
  int64_t batch_rows = 0;  // Cut to whole batches, as files without "_v1" are; 0: not cut.
};

/// OLMo-core's order for one epoch.
IndexMap olmo_core_order(const OlmoOptions& options, const OlmoCoreOptions& more);
/// "global_indices_dataset_size1000_epoch1_seed0_v1.npy"; cut to whole batches, the older
/// "global_indices_epoch1_seed0_size992.npy".
std::string olmo_core_name(const OlmoOptions& options, const OlmoCoreOptions& more);

/// Token files in their order, and the rows in them.
class OlmoFiles {
 public:
  /// `type` is kU16 or kU32. Throws InputError at a file with numpy's header or half a token, and
  /// when there is not one row.
  OlmoFiles(const std::vector<std::filesystem::path>& files, NumberType type,
            int64_t sequence_length);
  int64_t num_rows() const { return num_rows_; }

  struct Row {
    std::string file;
    int64_t begin = 0;  // Its first token in that file.
    std::vector<int64_t> ids;
  };
  /// Row `row` of all files, from 0.
  Row row(int64_t row) const;

 private:
  struct File {
    std::string name;
    MappedFile map;
    int64_t first_row = 0;
  };
  NumberType type_;
  int64_t sequence_length_;
  int64_t num_rows_ = 0;
  std::vector<File> files_;
};

}  // namespace atl::data
