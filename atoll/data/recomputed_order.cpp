#include "atoll/data/recomputed_order.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/data/neox_order.h"
#include "atoll/data/olmo_order.h"

namespace atl::data {
namespace {

using Json = nlohmann::ordered_json;

/// One of the stores that NeoX reads, and its order.
struct NeoxSource {
  std::string prefix;
  std::optional<data::MegatronStore> store;  // Not there where only counts are given.
  data::NeoxOrder order;
};

using NeoxPointer = std::shared_ptr<const NeoxSource>;

Json neox_row(const NeoxSource& source, int64_t row) {
  Json json = {{"sample", source.order.sample(row)}};
  if (!source.store) return json;
  Json pieces = Json::array();
  for (const data::NeoxPiece& piece : source.order.row(row, source.store->index().sizes)) {
    pieces.push_back({{"document", piece.document}, {"begin", piece.begin}, {"end", piece.end}});
  }
  json["pieces"] = std::move(pieces);
  json["ids"] = data::neox_row_tokens(*source.store, source.order, row);
  return json;
}

int64_t part_number(const std::string& part) {
  return part == "train" ? 0 : part == "valid" ? 1 : 2;
}

NeoxPointer neox_source(const OrderArguments& arguments, size_t number,
                        const data::NeoxOptions& options) {
  auto source = std::make_shared<NeoxSource>();
  if (arguments.documents > 0) {
    source->prefix = arguments.inputs.empty() ? "store" : arguments.inputs.front();
    source->order = data::neox_shuffles(arguments.documents, arguments.tokens, options);
    return source;
  }
  source->store = data::MegatronStore::open(arguments.inputs[number]);
  source->prefix = source->store->prefix();
  const data::MegatronIndex& index = source->store->index();
  std::array<int64_t, 4> bounds = {0, index.num_sequences()};
  size_t part = 0;
  if (arguments.weights.empty()) {  // Stores of a blend are not split.
    bounds = data::neox_split(arguments.split, index.num_sequences());
    part = static_cast<size_t>(part_number(arguments.part));
  }
  source->order = data::neox_order(index.sizes, bounds[part], bounds[part + 1], options);
  return source;
}

void require_neox_arguments(const OrderArguments& arguments) {
  const bool has_counts = arguments.documents > 0 || arguments.tokens > 0;
  if (has_counts && (arguments.documents == 0 || arguments.tokens == 0)) {
    throw UsageError("--documents and --tokens go together");
  }
  const size_t most = arguments.weights.empty() || has_counts ? 1 : arguments.weights.size();
  if (has_counts && arguments.weights.size() > 1) {
    throw UsageError("--documents and --tokens describe one store, so there is one weight");
  }
  const size_t least = has_counts ? 0 : most;
  if (arguments.inputs.size() < least || arguments.inputs.size() > most) {
    throw UsageError(fmt::format(
        "{} Megatron store(s) must be named here, not {}; several need --weights, one for each",
        most, arguments.inputs.size()));
  }
  if (arguments.samples == 0 || arguments.sequence_length == 0) {
    throw UsageError("--kind neox needs --samples and --sequence-length");
  }
  if (arguments.seed > std::numeric_limits<uint32_t>::max()) {
    throw UsageError(fmt::format("--seed: NeoX's seeds end at 2^32 - 1: {}", arguments.seed));
  }
}

}  // namespace

RecomputedOrder recompute_neox(const OrderArguments& arguments) {
  require_neox_arguments(arguments);
  const bool blends = !arguments.weights.empty();
  std::vector<int64_t> samples = {arguments.samples};
  if (blends) samples = data::neox_blend_samples(arguments.weights, arguments.samples);
  std::vector<NeoxPointer> sources;
  RecomputedOrder result;
  std::vector<int64_t> num_rows;
  for (size_t i = 0; i < samples.size(); ++i) {
    const data::NeoxOptions options{.num_samples = samples[i],
                                    .sequence_length = arguments.sequence_length,
                                    .seed = static_cast<uint32_t>(arguments.seed)};
    const NeoxPointer source = neox_source(arguments, i, options);
    num_rows.push_back(source->order.num_rows());
    const std::string part = blends ? fmt::format("{}_{}", arguments.part, i) : arguments.part;
    const std::string name =
        data::neox_map_name(std::filesystem::path(source->prefix).filename().string(), part,
                            options, arguments.old_names);
    const auto add = [&](const char* kind, const data::IndexMap& map) {
      result.files.push_back({name + kind, {source, &map}});  // Lives as long as its order.
    };
    add("_doc_idx.npy", source->order.doc_idx);
    if (source->store) add("_sample_idx.npy", source->order.sample_idx);
    add("_shuffle_idx.npy", source->order.shuffle_idx);
    sources.push_back(source);
  }
  if (!blends) {
    result.num_rows = num_rows.front();
    result.row = [source = sources.front()](int64_t row) { return neox_row(*source, row); };
    return result;
  }
  const auto blend =
      std::make_shared<data::NeoxBlend>(data::neox_blend(arguments.weights, num_rows));
  result.num_rows = static_cast<int64_t>(blend->store.size());
  result.row = [sources, blend](int64_t row) {
    if (blend->store.empty()) throw UsageError("the blend has no rows");
    const size_t at = static_cast<size_t>(row) % blend->store.size();  // As NeoX goes on.
    const NeoxSource& source = *sources[blend->store[at]];
    Json json = {{"store", source.prefix}};
    json.update(neox_row(source, blend->row[at]));
    return json;
  };
  return result;
}

RecomputedOrder recompute_olmo(const OrderArguments& arguments) {
  const bool is_core = arguments.kind == "olmo-core";
  std::shared_ptr<const data::OlmoFiles> files;
  if (arguments.inputs.empty() == (arguments.num_rows == 0)) {
    throw UsageError(
        fmt::format("--kind {} needs either the token files or --num-rows", arguments.kind));
  }
  if (!arguments.inputs.empty()) {
    if (arguments.dtype.empty() || arguments.sequence_length == 0) {
      throw UsageError("token files need --dtype and --sequence-length: they have no header");
    }
    const std::vector<std::filesystem::path> paths(arguments.inputs.begin(),
                                                   arguments.inputs.end());
    files = std::make_shared<data::OlmoFiles>(
        paths, arguments.dtype == "uint16" ? data::NumberType::kU16 : data::NumberType::kU32,
        arguments.sequence_length);
  }
  const data::OlmoOptions options{
      .num_rows = files ? files->num_rows() : arguments.num_rows,
      .seed = arguments.seed,
      .epoch = arguments.epoch < 0 ? int64_t{is_core} : arguments.epoch};
  const data::OlmoCoreOptions more{.chunk_rows = arguments.chunk_rows,
                                   .batch_rows = arguments.batch_rows};
  const auto order = std::make_shared<const data::IndexMap>(
      is_core ? olmo_core_order(options, more)
              : olmo_order(options, arguments.world_size, arguments.drop_last));
  RecomputedOrder result;
  result.files.push_back(
      {is_core ? data::olmo_core_name(options, more) : "global_indices.npy", order});
  result.num_rows = static_cast<int64_t>(order->size());
  result.row = [order, files](int64_t row) -> Json {
    if (row >= static_cast<int64_t>(order->size())) {
      throw UsageError(
          fmt::format("the order has {} rows; there is no row {}", order->size(), row));
    }
    const int64_t index = order->at(static_cast<size_t>(row));
    Json json = {{"index", index}};
    if (files) {
      const data::OlmoFiles::Row found = files->row(index);
      json.update({{"file", found.file}, {"begin", found.begin}, {"ids", found.ids}});
    }
    return json;
  };
  return result;
}

}  // namespace atl::data
