#include "atoll/run/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/method/fragments.h"
#include "atoll/method/method.h"
#include "atoll/weights/presets.h"

namespace atl::run {

void DataOptions::visit(SettingList& list) {
  list.section("data", "what the islands read");
  list.add("path", path,
           "a token store (`atoll data pack`) or a mixture of them (`atoll data mix`), or a "
           "folder, text or jsonl file to make one of; "
           "empty: the Python sources on this machine");
  list.local();
  list.add("vocab_size", vocab_size, "of the tokenizer trained when data.path is not a store",
           {.min = 257, .max = 1'000'000});
  list.add("validation_share", validation_share, "of the documents, when data.path is not a store",
           {.min = 0, .max = 0.5});
}

void SwarmOptions::visit(SettingList& list) {
  list.section("swarm", "who takes part");
  list.add("replicas", replicas,
           "islands that the run begins with; each batch is cut into so many parts (0: as many as "
           "min_replicas)",
           {.min = 0, .max = 1024});
  list.add("min_replicas", min_replicas,
           "with fewer islands rounds wait, and it is said; others may come and go",
           {.min = 1, .max = 1024});
  list.add(
      "pace", pace,
      "lockstep: a round when all islands have taken sync.sync_every steps; elastic: when they "
      "have together, each at its own speed, and nobody waits (diloco, streaming_diloco, "
      "sparse_loco)",
      {"lockstep", "elastic"});
  list.add(
      "outlier_factor", outlier_factor,
      "an island's contribution whose norm is over so many times the usual one, or that points "
      "elsewhere than the others, is left out of its round (0: none is)",
      {.min = 0, .max = 1e6});
  list.add("silence_timeout", silence_timeout,
           "seconds without a word after which an island counts as lost, however irregular its "
           "signs of life were; regular ones are missed sooner",
           {.min = 1, .max = 1e6});
  list.add("round_timeout", round_timeout,
           "seconds without a step, at least silence_timeout, after which an island that is heard "
           "and has not begun a round that others have is removed; longer than an evaluation takes",
           {.min = 1, .max = 1e6});
  list.add("join_patience", join_patience,
           "seconds an island keeps trying to reach the coordinator", {.min = 0, .max = 1e6});
  list.local();
  list.add("return_patience", return_patience,
           "seconds an island waits for a coordinator that was lost while it trains",
           {.min = 0, .max = 1e6});
  list.local();
}

SettingList RunConfig::settings() {
  SettingList list;
  data.visit(list);
  model.visit(list);
  list.add("preset", preset,
           "sizes of a known model, which the others here may change: pythia-14m ...");
  adapter.visit(list);
  train.visit(list);
  sync.visit(list);
  swarm.visit(list);
  return list;
}

std::vector<Setting> changed_settings(RunConfig& config) {
  RunConfig defaults;
  const SettingList usual = defaults.settings();
  std::vector<Setting> changed = config.settings().settings();
  std::erase_if(changed, [&, i = size_t{0}](const Setting& setting) mutable {
    return setting.text() == usual.settings()[i++].text();
  });
  return changed;
}

void apply(RunConfig& config, const std::function<void(SettingList&)>& assign) {
  SettingList list = config.settings();
  assign(list);
  if (config.preset.empty()) return;
  config.model = weights::preset(config.preset);
  assign(list);
  config.preset.clear();
}

void apply(RunConfig& config, const std::filesystem::path& file,
           const std::vector<std::string>& overrides) {
  apply(config, [&](SettingList& list) {
    if (!file.empty()) list.apply_toml(read_file(file), file.string());
    for (const std::string& assignment : overrides) list.apply_override(assignment);
  });
}

RunConfig load_config(const std::filesystem::path& file,
                      const std::vector<std::string>& overrides) {
  RunConfig config;
  apply(config, file, overrides);
  return config;
}

void choose_method(RunConfig& config, bool alone) {
  if (config.sync.method == "default") config.sync.method = alone ? "single" : "diloco";
  if (config.swarm.is_elastic()) config.sync.fragment_sync_delay = 0;
}

/// What elastic pace needs of a method: rounds of any length, and a snapshot that it can set its
/// later work apart from.
void require_elastic(const method::SyncOptions& sync, int64_t steps) {
  const auto refuse = [](const std::string& setting) {
    throw UsageError(
        fmt::format("swarm.pace = 'elastic' does not go with {}; leave one of them out", setting));
  };
  if (!method::method_of(sync).goes_elastic) {
    refuse(fmt::format("sync.method = '{}' (it needs one of {})", sync.method,
                       fmt::join(method::methods_that(&method::Method::goes_elastic), ", ")));
  }
  if (steps < method::num_fragments(sync)) {
    throw UsageError(
        fmt::format("train.steps = {}: with swarm.pace = 'elastic' a run ends with a round of each "
                    "of its {} fragments, which are as many steps; give more steps",
                    steps, method::num_fragments(sync)));
  }
  if (sync.outer_dropout > 0) refuse("sync.outer_dropout");
  if (sync.sign_pruning > 0) refuse("sync.sign_pruning");
  if (sync.outer_mean != "mean") refuse(fmt::format("sync.outer_mean = '{}'", sync.outer_mean));
  if (sync.codec == "auto") refuse("sync.codec = 'auto', which measures islands of one speed");
}

/// What does not go with an adapter.
void check_adapter(const RunConfig& config) {
  if (!config.adapter.is_on()) return;
  if (config.train.teacher_share > 0 || !config.train.teacher.empty()) {
    throw UsageError("train.teacher: an adapter learns from texts alone; leave it out");
  }
  if (config.train.device != "cpu") {
    throw UsageError(
        fmt::format("train.device = '{}': adapters are trained on the CPU", config.train.device));
  }
  if (config.train.precision != "fp32") {
    throw UsageError(
        fmt::format("train.precision = '{}': adapters are trained in fp32; leave it out",
                    config.train.precision));
  }
  if (config.train.activation_checkpointing) {
    throw UsageError(
        "train.activation_checkpointing: an adapter's layers are computed again as it is, where "
        "memory asks for it; leave it out");
  }
  const bool is_prompt = config.adapter.kind == "prompt";
  const int64_t length =
      config.train.sequence_length + (is_prompt ? config.adapter.prompt_tokens : 0);
  if (length > config.model.context()) {
    throw UsageError(
        fmt::format("train.sequence_length and adapter.prompt_tokens are {} in all, over the "
                    "model's {} positions",
                    length, config.model.context()));
  }
}

std::vector<weights::ParameterSpec> trained_specs(const RunConfig& config,
                                                  const weights::ModelConfig& model) {
  if (!config.adapter.is_on()) return weights::parameter_specs(model);
  return weights::adapter_specs(model, adapter_config(config.adapter, model));
}

void check(const RunConfig& config) {
  const auto& train = config.train;
  const int64_t islands = config.swarm.num_replicas();
  if (config.swarm.min_replicas > islands) {
    throw UsageError(fmt::format(
        "swarm.min_replicas = {}: the run begins with {} islands (swarm.replicas) and would wait "
        "at once; give --swarm.replicas as many or more",
        config.swarm.min_replicas, islands));
  }
  if (train.batch_rows % islands != 0) {
    throw UsageError(
        fmt::format("train.batch_rows = {} cannot be dealt evenly to {} islands "
                    "(swarm.replicas); make it a multiple",
                    train.batch_rows, islands));
  }
  const int64_t rows = train.batch_rows / islands;
  if (train.micro_batch_rows > 0 && rows % train.micro_batch_rows != 0) {
    throw UsageError(
        fmt::format("train.micro_batch_rows = {} must divide an island's {} rows a step",
                    train.micro_batch_rows, rows));
  }
  if (train.sequence_length > config.model.context()) {
    throw UsageError(fmt::format("train.sequence_length = {} is over model.max_positions = {}",
                                 train.sequence_length, config.model.max_positions));
  }
  if (train.warmup_steps > train.steps) {
    throw UsageError(fmt::format("train.warmup_steps = {} is over train.steps = {}",
                                 train.warmup_steps, train.steps));
  }
  if (method::method_of(config.sync).makes_signs &&
      (train.optimizer != "sgd" || train.grad_clip != 0)) {
    throw UsageError(fmt::format(
        "sync.method = '{}' makes a sign of each gradient, for SGD without clipping: it needs "
        "train.optimizer = 'sgd', not '{}', and train.grad_clip = 0, not {}",
        config.sync.method, train.optimizer, train.grad_clip));
  }
  if (config.swarm.outlier_factor > 0 && config.swarm.outlier_factor < 2) {
    throw UsageError(fmt::format(
        "swarm.outlier_factor = {}: norms differ by as much from round to round; give 2 or more, "
        "or 0 to leave nobody out",
        config.swarm.outlier_factor));
  }
  if (train.shard != "none" && train.optimizer == "muon") {
    throw UsageError(fmt::format(
        "train.shard = '{}' cuts matrices apart, and train.optimizer = 'muon' needs them whole; "
        "leave one of them out",
        train.shard));
  }
  if (config.swarm.is_elastic()) require_elastic(config.sync, train.steps);
  check_adapter(config);
  weights::ModelConfig model = config.model;
  if (model.vocab_size == 0) model.vocab_size = 1;  // The tokenizer's, not known yet.
  weights::check(model);
  method::check(config.sync);
  // Refused here, before anything is started.
  method::make_fragments(trained_specs(config, model), config.sync.fragment_pattern,
                         method::num_fragments(config.sync));
  if (method::method_of(config.sync).is_for_one && islands > 1) {
    throw UsageError(
        fmt::format("sync.method = '{}' trains one island, and swarm.replicas is {}; choose "
                    "diloco or data_parallel",
                    config.sync.method, islands));
  }
}

void check_used(const RunConfig& config, const std::vector<std::string>& overrides) {
  check_used(config.adapter, overrides);
  for (const std::string_view assignment : overrides) {
    const std::string_view name = assignment.substr(0, assignment.find('='));
    const std::string_view section = name.substr(0, name.find('.'));
    const std::string_view field = name.substr(std::min(name.size(), section.size() + 1));
    if (name == "sync.fragment_sync_delay" && config.swarm.is_elastic()) {
      throw UsageError(
          "sync.fragment_sync_delay has no effect with swarm.pace = 'elastic', where nobody waits "
          "for an exchange; leave one of them out");
    }
    const bool has_rests = field == "exchange_share" && config.swarm.is_elastic();
    if (section == "sync" && !has_rests) method::check_used(config.sync, field);
    if (section == "train") method::check_used(config.train, field);
  }
}

bool takes_newcomers(const RunConfig& config) {
  return method::method_of(config.sync).takes_newcomers && config.sync.codec != "auto";
}

}  // namespace atl::run
