#pragma once
// The order in which GPT-NeoX, and so Pythia, reads a Megatron store: documents are repeated for as
// many epochs as the samples need and shuffled, cut one behind the other into samples of
// sequence_length + 1 tokens that share one token with the next, and the samples shuffled by the
// same generator. Row i of training is sample shuffle_idx[i]. NeoX keeps the three arrays as .npy
// files. ("epoch" and "sample" are NeoX's words; its epochs are shuffled together, so they are no
// passes.)
//
// Pure functions; an order may be read by threads.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/index_map.h"
#include "atoll/data/megatron.h"

namespace atl::data {

struct NeoxOptions {
  int64_t num_samples = 0;      // Asked for; the order may have more. 0 to 2^40.
  int64_t sequence_length = 0;  // 1 to 2^20; a row has one token more.
  uint32_t seed = 0;
};

/// A stretch of one document: tokens [begin, end) of it.
struct NeoxPiece {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

struct NeoxOrder {
  int64_t num_epochs = 0;
  IndexMap doc_idx;
  IndexMap sample_idx;  // Empty where the sizes of the documents were not given.
  IndexMap shuffle_idx;

  int64_t num_rows() const { return static_cast<int64_t>(shuffle_idx.size()); }
  /// Where the tokens of row `row` (from 0) come from. `sizes` are those that the order was made
  /// of. From num_rows() on NeoX begins again, one row early: row r is r mod (num_rows() - 1).
  std::vector<NeoxPiece> row(int64_t row, const PackedNumbers<int32_t>& sizes) const;
  /// The sample of a row; see row().
  int64_t sample(int64_t row) const;
};

/// The order of documents [begin, end) of a store with these sizes. Throws InputError when they
/// hold fewer than two tokens, UsageError when an option is out of range or the arrays would have
/// more than 2^33 numbers.
NeoxOrder neox_order(const PackedNumbers<int32_t>& sizes, int64_t begin, int64_t end,
                     const NeoxOptions& options);

/// The same from counts alone, for stores whose index nobody has any more: no sample_idx.
NeoxOrder neox_shuffles(int64_t num_documents, int64_t num_tokens, const NeoxOptions& options);

/// The tokens of a row: sequence_length + 1 of them.
std::vector<int64_t> neox_row_tokens(const MegatronStore& store, const NeoxOrder& order,
                                     int64_t row);

/// "PREFIX_NAME_indexmap_512ns_2048sl_1234s_packedpi_ac" without the "_doc_idx.npy" behind it;
/// `old_names` leaves out "_packedpi_ac", as older versions did and Pythia's files do.
std::string neox_map_name(const std::string& prefix, const std::string& name,
                          const NeoxOptions& options, bool old_names);

/// The bounds of train, valid and test for a split such as "969,30,1": the first document of each,
/// then the number of documents. Throws UsageError unless it is numbers with ',' or '/' between,
/// and where NeoX's rounding would begin a part before document 0.
std::array<int64_t, 4> neox_split(std::string_view split, int64_t num_documents);

/// Several stores by weight.
struct NeoxBlend {
  std::vector<uint8_t> store;  // Of each row of the blend.
  std::vector<int64_t> row;    // Of each row of the blend, in its store's order.
};

/// How many samples of each store NeoX asks for, half a per cent more than its share.
std::vector<int64_t> neox_blend_samples(std::span<const double> weights, int64_t num_samples);

/// The rows by data/blend.h. `num_rows` are those of the stores'
/// orders; the blend has one less of each. Throws UsageError unless there are 1 to 254 weights, all
/// positive.
NeoxBlend neox_blend(std::span<const double> weights, std::span<const int64_t> num_rows);

}  // namespace atl::data
