#include "atoll/method/method.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::method {
namespace {

using Fields = std::vector<std::string_view>;

/// What every method with an outer optimiser uses, and `more`.
Fields outer_fields(const Fields& more = {}) {
  Fields fields = {"sync_every",      "outer_lr",    "outer_momentum",
                   "outer_optimizer", "outer_beta2", "outer_eps"};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

void check_streaming(const SyncOptions& options) {
  if (options.fragment_sync_delay >= options.sync_every) {
    throw UsageError(
        fmt::format("sync.fragment_sync_delay = {} must be below sync.sync_every = {}: a fragment "
                    "arrives before it is sent again",
                    options.fragment_sync_delay, options.sync_every));
  }
  if (options.num_fragments > options.sync_every) {
    throw UsageError(fmt::format(
        "sync.num_fragments = {} is over sync.sync_every = {}: a step sends at most one",
        options.num_fragments, options.sync_every));
  }
}

void check_late(const SyncOptions& options) {
  if (options.outer_optimizer != "adam") return;
  throw UsageError(
      fmt::format("sync.outer_optimizer = 'adam' cannot be used with {}: the mean of all replicas "
                  "would not follow from the mean outer gradient; choose nesterov",
                  options.method));
}

void check_cocktail(const SyncOptions& options) {
  if (options.fragment_sync_delay > 1) {
    throw UsageError(
        fmt::format("sync.fragment_sync_delay = {}: cocktail_sgd has at most one exchange on its "
                    "way; choose 1 (beside the next step) or 0",
                    options.fragment_sync_delay));
  }
  if (options.layer_metrics) {
    throw UsageError(
        "sync.layer_metrics cannot be used with cocktail_sgd: an island sees a compressed sum of "
        "the others' differences and of older errors, whose angles say nothing");
  }
}

}  // namespace

const std::vector<Method>& methods() {
  static const std::vector<Method> table = {
      {.name = "single", .what = "one island", .is_for_one = true},
      {.name = "data_parallel",
       .what = "mean gradient every step",
       .left_out = LeftOut::kKept,
       .reduces_gradients = true},
      {.name = "diloco",
       .what = "mean outer gradient every sync_every steps",
       .settings = outer_fields({"outer_mean", "sign_pruning", "outer_dropout", "outer_device"}),
       .takes_newcomers = true,
       .goes_elastic = true},
      {.name = "streaming_diloco",
       .what = "the same fragment by fragment, beside training",
       .settings = outer_fields({"num_fragments", "fragment_pattern", "fragment_sync_delay",
                                 "fragment_update_alpha", "exchange_share", "outer_device"}),
       .codec = "e3m0",
       .encodes_once = true,
       .takes_newcomers = true,
       .goes_elastic = true,
       .check = check_streaming},
      {.name = "eager_diloco",
       .what = "the others' part is used one period late",
       .settings = outer_fields({"exchange_share"}),
       .is_late = true,
       .check = check_late},
      {.name = "delayed_diloco",
       .what = "the mean is used one period late",
       .settings = outer_fields({"exchange_share"}),
       .is_late = true,
       .check = check_late},
      {.name = "sparse_loco",
       .what = "diloco with error feedback for sparse codecs",
       .settings = {"sync_every", "outer_lr", "error_feedback_decay"},
       .codec = "sparse_loco",
       .outer_lr = 1,
       .left_out = LeftOut::kMomentum,
       .encodes_once = true,
       .takes_newcomers = true,
       .goes_elastic = true},
      {.name = "cocktail_sgd",
       .what = "compressed differences every step",
       .settings = {"fragment_sync_delay", "exchange_share"},
       .codec = "cocktail",
       .left_out = LeftOut::kBothSides,
       .check = check_cocktail},
      {.name = "demo",
       .what = "the largest cosine coefficients of each replica's momentum every "
               "step",
       .settings = {"momentum_decay"},
       .codec = "chunk_topk(32/4096)+bf16",
       .left_out = LeftOut::kMomentum,
       .encodes_once = true,
       .reduces_gradients = true,
       .makes_signs = true},
  };
  return table;
}

std::vector<std::string_view> methods_that(const std::function<bool(const Method&)>& are_so) {
  std::vector<std::string_view> names;
  for (const Method& method : methods()) {
    if (are_so(method)) names.push_back(method.name);
  }
  return names;
}

bool Method::uses(std::string_view field) const { return std::ranges::count(settings, field) > 0; }

const Method& method_of(const SyncOptions& options) {
  std::string_view name = options.method;
  if (name == "default") name = "diloco";
  const auto found = std::ranges::find(methods(), name, &Method::name);
  if (found == methods().end()) throw UsageError(fmt::format("unknown sync.method '{}'", name));
  return *found;
}

std::string codec_name(const SyncOptions& options) {
  return options.codec == "default" ? std::string(method_of(options).codec) : options.codec;
}

double outer_lr(const SyncOptions& options) {
  return options.outer_lr < 0 ? method_of(options).outer_lr : options.outer_lr;
}

int64_t num_fragments(const SyncOptions& options) {
  return method_of(options).has_fragments() ? options.num_fragments : 1;
}

int64_t period(const SyncOptions& options) {
  return method_of(options).syncs_every_step() ? 1 : options.sync_every;
}

int64_t max_delay(const SyncOptions& options) {
  const Method& method = method_of(options);
  if (!method.has_delay()) return 0;
  return method.has_fragments() ? options.sync_every - 1 : 1;
}

int64_t fragment_sync_delay(const SyncOptions& options) {
  return method_of(options).has_delay() ? options.fragment_sync_delay : 0;
}

int64_t delay(const SyncOptions& options) {
  return method_of(options).is_late ? period(options) : fragment_sync_delay(options);
}

int64_t max_steps_apart(const SyncOptions& options) { return period(options) + delay(options); }

}  // namespace atl::method
