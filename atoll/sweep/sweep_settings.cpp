#include "atoll/sweep/sweep_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/method/method.h"

namespace atl::sweep {
namespace {

struct OwnedSetting {
  const char* name;
  const char* instead;
};
/// The sweep sets these for each point.
constexpr std::array kOwned = {
    OwnedSetting{"train.steps", "[sweep] tokens_per_param and a grid's tokens_factor"},
    OwnedSetting{"train.batch_rows", "a grid's batch_tokens"},
    OwnedSetting{"train.lr", "a grid's lr"},
    OwnedSetting{"train.seed", "seeds"},
    OwnedSetting{"train.threads", "[sweep] threads"},
    OwnedSetting{"sync.method", "a grid's method"},
    OwnedSetting{"sync.sync_every", "a grid's sync_every"},
    OwnedSetting{"sync.outer_lr", "a grid's outer_lr"},
    OwnedSetting{"swarm.replicas", "a grid's replicas"},
    OwnedSetting{"swarm.min_replicas", "a grid's replicas"},
};

/// What does not change the loss at the end.
constexpr std::array kWithoutEffect = {
    "train.log_every",        "train.eval_every",    "train.checkpoint_every",
    "train.keep_checkpoints", "train.rejoin_warmup", "swarm.min_replicas",
    "swarm.silence_timeout",  "swarm.round_timeout", "sync.layer_metrics",
};

/// The names of the settings that a document gives.
std::vector<std::string> names_in(const TomlTable& document) {
  std::vector<std::string> names;
  for (const auto& [section, content] : document) {
    if (const auto* table = content.get<TomlTable>()) {
      for (const auto& [key, value] : *table) names.push_back(section + "." + key);
    }
  }
  return names;
}

/// What a UsageError says; empty: there is none.
std::string complaint_of(const auto& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

bool has_use(const run::RunConfig& config, const std::string& name) {
  return complaint_of([&] { run::check_used(config, {name}); }).empty();
}

}  // namespace

SweepSettings::SweepSettings(SweepSpec spec, std::string where)
    : spec_(std::move(spec)), where_(std::move(where)), given_(names_in(spec_.settings)) {
  run::apply(common_,
             [&](SettingList& list) { list.apply(spec_.settings, where_ + ": [settings]"); });
  for (const OwnedSetting& owned : kOwned) {
    if (std::ranges::find(given_, owned.name) == given_.end()) continue;
    throw UsageError(fmt::format("{}: [settings]: {} is set by the sweep for each point: give {}",
                                 where_, owned.name, owned.instead));
  }
  use({});
}

run::RunConfig SweepSettings::load(const std::string& size) const {
  const auto found = std::ranges::find(spec_.sizes, size, &Size::name);
  run::RunConfig config;
  run::apply(config, [&](SettingList& list) {
    list.apply(spec_.settings, where_ + ": [settings]");
    list.apply(found->settings, fmt::format("{}: [sizes.{}]", where_, size));
  });
  if (config.model.vocab_size == 0) {
    config.model.vocab_size = store_.vocab_size > 0 ? store_.vocab_size : config.data.vocab_size;
  }
  return config;
}

void SweepSettings::use(SweepStore store) {
  store_ = std::move(store);
  models_.clear();
  configs_.clear();
  for (const Size& size : spec_.sizes) {
    run::RunConfig config = load(size.name);
    const std::string where = fmt::format("{}: [sizes.{}]", where_, size.name);
    if (config.model.vocab_size < store_.vocab_size) {
      throw UsageError(fmt::format(
          "{}: vocab_size = {} is below the {} of the store '{}'; leave it out, it is the store's "
          "then ([settings.data] vocab_size is what a text is packed with)",
          where, config.model.vocab_size, store_.vocab_size, store_.path.string()));
    }
    const std::string complaint = complaint_of([&] { weights::check(config.model); });
    if (!complaint.empty()) throw UsageError(fmt::format("{}: {}", where, complaint));
    const auto all = static_cast<double>(weights::num_parameters(config.model));
    const double papers = laws::papers_params(static_cast<double>(config.model.num_layers),
                                              static_cast<double>(config.model.hidden_size),
                                              static_cast<double>(config.model.intermediate_size),
                                              static_cast<double>(config.model.vocab_size));
    models_[size.name] = {size.name, config.model, spec_.papers_count ? papers : all, all};
    configs_[size.name] = std::move(config);
  }
  for (const auto& [name, one] : models_) {
    for (const auto& [other_name, other] : models_) {
      if (name < other_name && one.params == other.params) {
        throw UsageError(
            fmt::format("{}: the sizes '{}' and '{}' both have {:.0f} parameters; a law needs "
                        "sizes that differ",
                        where_, name, other_name, one.params));
      }
    }
  }
  check_all();
}

bool SweepSettings::is_of_store(const std::map<std::string, std::string>& identity) const {
  const auto digest = identity.find("data.digest");
  return store_.digest.empty() || (digest != identity.end() && digest->second == store_.digest);
}

const SweptModel& SweepSettings::model(const std::string& size) const { return models_.at(size); }

PlanRules SweepSettings::rules() const {
  return {.sequence_length = common_.train.sequence_length,
          .obstacle = [this](const SweepPoint& point) { return obstacle(point); }};
}

void SweepSettings::check_all() const {
  check_plan(spec_, rules(), where_);
  std::map<std::string, std::string> useless;  // Setting -> why, while no point has a use for it.
  bool is_first = true;
  for (const Grid& grid : spec_.grids) {
    // Without the store the vocabulary, and so each size, is a guess.
    const bool knows_sizes = store_.vocab_size > 0;
    if (grid.starts_at_size_before && knows_sizes) check_order(grid);
    for (const SweepPoint& named : named_points(grid)) {
      SweepPoint point = named;
      // "best" values are not known yet; these stand for them.
      if (point.at[kBatchTokens] == 0) {
        const int64_t rows = std::max<int64_t>(1, common_.train.micro_batch_rows);
        point.at[kBatchTokens] =
            static_cast<double>(common_.train.sequence_length * num_islands(point) * rows);
      }
      if (point.at[kLr] == 0) point.at[kLr] = common_.train.lr;
      if (grid.search == Search::kHalving) {
        point.tokens_share = rung_share(0, spec_.halving_rungs, spec_.halving_rate);
      }
      const run::RunConfig one = config(point);
      for (const std::string& name : given_) {
        const std::string why = complaint_of([&] { run::check_used(one, {name}); });
        if (is_first && !why.empty()) useless[name] = why;
        if (why.empty()) useless.erase(name);
      }
      is_first = false;
      if (const std::string why = obstacle(point); !why.empty()) {
        throw UsageError(
            fmt::format("{}: grid '{}', {}: {}", where_, grid.name, place_name(named), why));
      }
      point.tokens_share = 1;
      const int64_t steps = config(point).train.steps;
      if (knows_sizes && point.cell.sync_every > steps) {
        throw UsageError(fmt::format(
            "{}: grid '{}', {}: sync_every = {} is over the {} steps of its run, so the islands "
            "would agree "
            "once, after the last; give a smaller one, more tokens or a smaller batch_tokens",
            where_, grid.name, place_name(named), point.cell.sync_every, steps));
      }
    }
  }
  if (!useless.empty()) {
    throw UsageError(fmt::format("{}: [settings]: {}", where_, useless.begin()->second));
  }
}

void SweepSettings::check_order(const Grid& grid) const {
  std::vector<std::string> rising = grid.sizes;
  std::ranges::sort(rising, {}, [&](const std::string& size) { return model(size).params; });
  if (rising == grid.sizes) return;
  throw UsageError(
      fmt::format("{}: grid '{}': start = \"size_before\" goes from the smallest size to the "
                  "largest; give sizes = [\"{}\"]",
                  where_, grid.name, fmt::join(rising, "\", \"")));
}

int64_t SweepSettings::num_islands(const SweepPoint& point) {
  return std::max<int64_t>(1, point.cell.replicas);
}

int64_t SweepSettings::cores(const SweepPoint& point) const {
  return num_islands(point) * spec_.threads;
}

double SweepSettings::tokens_wanted(const SweepPoint& point) const {
  return spec_.tokens_per_param * model(point.cell.size).params * point.cell.tokens_factor *
         point.tokens_share;
}

double SweepSettings::tokens(const SweepPoint& point) const {
  const double batch = point.at[kBatchTokens];
  return batch * static_cast<double>(steps_for(tokens_wanted(point), batch, point.cell.sync_every));
}

run::RunConfig SweepSettings::config(const SweepPoint& point) const {
  run::RunConfig config = configs_.at(point.cell.size);
  const double batch = point.at[kBatchTokens];
  config.data.path = store_.path.string();
  config.train.steps = steps_for(tokens_wanted(point), batch, point.cell.sync_every);
  config.train.batch_rows =
      static_cast<int64_t>(batch) / std::max<int64_t>(1, config.train.sequence_length);
  config.train.lr = point.at[kLr];
  config.train.seed = point.seed;
  config.train.threads = spec_.threads;
  config.swarm.replicas = num_islands(point);
  config.swarm.min_replicas = num_islands(point);
  // One process with the whole batch is data-parallel training, with nothing to exchange.
  config.sync.method = point.cell.replicas == 0 ? "single" : point.cell.method;
  if (point.cell.sync_every > 0) config.sync.sync_every = point.cell.sync_every;
  if (point.at[kOuterLr] > 0) config.sync.outer_lr = point.at[kOuterLr];
  run::choose_method(config, point.cell.replicas == 0);
  return config;
}

std::string SweepSettings::obstacle(const SweepPoint& point) const {
  const double batch = point.at[kBatchTokens];
  if (const double wanted = tokens_wanted(point); wanted < batch) {
    return fmt::format("{:.0f} tokens are less than one batch of {:.0f}{}", wanted, batch,
                       point.tokens_share < 1
                           ? "; fewer halving_rungs or a smaller halving_rate leave it more"
                           : "");
  }
  return complaint_of([&] {
    run::RunConfig one = config(point);
    one.settings().check("the point's settings");
    run::check(one);
  });
}

std::map<std::string, std::string> SweepSettings::identity(const SweepPoint& point) const {
  run::RunConfig one = config(point);
  one.model = weights::canonical(one.model);
  one.train.warmup_steps = method::warmup_steps(one.train);
  if (one.sync.outer_lr < 0) one.sync.outer_lr = method::outer_lr(one.sync);
  one.sync.codec = method::codec_name(one.sync);
  std::map<std::string, std::string> identity;
  const SettingList all = one.settings();
  for (const Setting& setting : all.settings()) {
    const std::string name = setting.name();
    const bool is_alone_swarm = num_islands(point) == 1 && name.starts_with("swarm.");
    const bool is_idle_sync = point.cell.replicas == 0 && name.starts_with("sync.");
    // Local settings, but sums in another order are other sums.
    const bool is_of_sums = name == "train.threads" || name == "train.device";
    if ((setting.local && !is_of_sums) || setting.is_unsaid || name.starts_with("data.") ||
        is_alone_swarm || is_idle_sync || name == "model.preset" ||
        std::ranges::find(kWithoutEffect, name) != kWithoutEffect.end() || !has_use(one, name)) {
      continue;
    }
    identity[name] = setting.text();
  }
  identity["data.digest"] = store_.digest;
  identity["swarm.replicas"] = fmt::format("{}", num_islands(point));
  identity["sync.method"] = one.sync.method;
  return identity;
}

double SweepSettings::flops(const SweepPoint& point) const {
  return 6 * model(point.cell.size).num_parameters * tokens(point);
}

double SweepSettings::expected_bytes(const SweepPoint& point) const {
  constexpr double kProgram = 350e6;  // LibTorch and its heap.
  constexpr double kCopies = 14;  // Parameters, gradients, moments, global copy, a checkpoint's.
  const run::RunConfig& config = configs_.at(point.cell.size);
  const weights::ModelConfig& model = config.model;
  const auto islands = static_cast<double>(num_islands(point));
  const double rows_tokens =
      config.train.micro_batch_rows > 0
          ? static_cast<double>(config.train.micro_batch_rows * config.train.sequence_length)
          : point.at[kBatchTokens] / islands;
  const auto activations = static_cast<double>(
      model.num_layers * (16 * model.hidden_size + 6 * model.intermediate_size) +
      2 * model.vocab_size);
  const double values =
      kCopies * this->model(point.cell.size).num_parameters + rows_tokens * activations;
  return islands * (kProgram + static_cast<double>(sizeof(float)) * values);
}

std::string key_of(const std::map<std::string, std::string>& identity) {
  Sha256 hash;
  for (const auto& [name, value] : identity) hash.update(fmt::format("{}={}\n", name, value));
  return hex(hash.finish());
}

}  // namespace atl::sweep
