#include "atoll/island/run_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/model/spilled_tensor.h"
#include "atoll/weights/adapter.h"
#include "atoll/weights/hf_config.h"

namespace atl::island {
namespace {

using nlohmann::json;

constexpr const char* kLive = "live";
constexpr int64_t kFormat = 1;  // Of state.json and manifest.json.

/// Whether who gave a tensor goes on to change it, or gathered it for the checkpoint alone.
enum class Given { kInUse, kGathered };

/// One view per parameter of a flat host tensor, named "prefix.parameter" (no prefix: "parameter").
void add_views(const model::Parameters& parameters, const std::string& prefix,
               const at::Tensor& flat_P, Given given, std::vector<weights::TensorView>& views) {
  const auto* data = flat_P.const_data_ptr<float>();
  for (const auto& spec : parameters.specs()) {
    const std::span values(data + spec.offset, static_cast<size_t>(spec.size));
    views.push_back({.name = prefix.empty() ? spec.name : prefix + "." + spec.name,
                     .type = weights::DType::kF32,
                     .shape = spec.shape,
                     .bytes = std::as_bytes(values),
                     .is_mapped = model::is_spilled(flat_P),
                     .is_final = given == Given::kGathered});
  }
}

void restore(const weights::SafetensorsFile& file, const model::Parameters& parameters,
             const std::string& prefix, const at::Tensor& flat_P) {
  const at::Tensor host_P = flat_P.device().is_cpu() ? flat_P : at::empty_like(flat_P.cpu());
  auto* data = host_P.mutable_data_ptr<float>();
  const bool is_spilled = model::is_spilled(host_P);
  for (const auto& spec : parameters.specs()) {
    const auto& tensor = file.at(prefix.empty() ? spec.name : prefix + "." + spec.name);
    if (tensor.shape != spec.shape) {
      throw InputError(fmt::format(
          "'{}': tensor '{}' has shape [{}] and the run's model wants [{}]", file.path().string(),
          tensor.name, fmt::join(tensor.shape, ", "), fmt::join(spec.shape, ", ")));
    }
    auto* next = data + spec.offset;
    weights::read_in_pieces(tensor, [&](std::span<const std::byte> bytes) {
      const size_t size = bytes.size() / weights::num_bytes(tensor.type);
      weights::copy_as_f32({.name = tensor.name,
                            .type = tensor.type,
                            .shape = {static_cast<int64_t>(size)},
                            .bytes = bytes},
                           {next, size}, file.path().string());
      if (is_spilled) let_rest(std::as_bytes(std::span(next, size)));
      next += size;
    });
  }
  if (!flat_P.device().is_cpu()) flat_P.copy_(host_P);
}

/// A host view of a flat tensor; from a device it is a copy that `keep` holds until it is written.
at::Tensor on_host(const at::Tensor& flat_P) {
  return flat_P.device().is_cpu() ? flat_P : flat_P.cpu();
}

/// Every error of a checkpoint says how to go on.
template <typename Function>
auto with_advice(const Function& read) {
  try {
    return read();
  } catch (const InputError& error) {
    constexpr const char* kAdvice = "remove this folder to go on from the one before";
    const std::string message = error.what();
    if (message.find(kAdvice) != std::string::npos) throw;
    throw InputError(fmt::format("{}; {}", message, kAdvice));
  }
}

/// The step in a checkpoint folder's name; -1: no such name.
int64_t step_of(const std::filesystem::path& folder) {
  for (const auto& [step, path] : weights::list_checkpoints(folder.parent_path())) {
    if (path.filename() == folder.filename()) return step;
  }
  return -1;
}

[[noreturn]] void fail(const std::filesystem::path& folder, const std::string& what) {
  throw InputError(fmt::format("checkpoint '{}': {}", folder.string(), what));
}

json parse_json(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  json out = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!out.is_object()) fail(file.parent_path(), file.filename().string() + " is no JSON object");
  return out;
}

void check_manifest(const std::filesystem::path& folder, int64_t step) {
  const json manifest = parse_json(folder / "manifest.json");
  const auto expect = [&](const char* key, int64_t wanted) {
    const auto found = manifest.find(key);
    if (found == manifest.end() || *found != wanted) {
      fail(folder, fmt::format("manifest.json has {} = {} and not {}", key,
                               found == manifest.end() ? "nothing" : found->dump(), wanted));
    }
  };
  expect("format", kFormat);
  expect("step", step);
  const json files = manifest.value("files", json());
  const bool is_adapter = std::filesystem::exists(folder / weights::kAdapterConfigFile);
  const std::vector<const char*> names =
      is_adapter ? std::vector{"state.json", weights::kAdapterConfigFile}
                 : std::vector{"state.json", "config.json", "tokenizer.json"};
  for (const char* const name : names) {
    if (!files.is_object() || !files.contains(name)) {
      fail(folder, fmt::format("manifest.json does not list {}", name));
    }
  }
}

void check_state(const std::filesystem::path& folder, const RunState& state, int64_t last_step,
                 const rounds::Pace& pace) {
  if (state.step > last_step) {
    fail(folder,
         fmt::format("it is of step {} and the run has {} (train.steps)", state.step, last_step));
  }
  if (state.num_updates < 0 || !pace.fits(state.num_updates, state.step)) {
    fail(folder,
         fmt::format("state.json has {} updates in {} steps", state.num_updates, state.step));
  }
}

/// A checkpoint of a run of `last_step` steps, verified but for its tensors' digest.
std::pair<weights::Checkpoint, RunState> open_checkpoint(const std::filesystem::path& folder,
                                                         int64_t last_step,
                                                         const rounds::Pace& pace) {
  const RunState state = read_run_state(folder);
  return with_advice([&] {
    check_manifest(folder, state.step);
    check_state(folder, state, last_step, pace);
    return std::pair(weights::Checkpoint(folder), state);
  });
}

void restore_tensors(const weights::Checkpoint& checkpoint, const model::Parameters& parameters,
                     train::InnerOptimizer& optimizer, sync::Strategy& strategy) {
  const at::Tensor& live_P = parameters.values_P();
  restore(checkpoint.model(), parameters, "", live_P);
  strategy.restore_global(live_P);
  const auto& tensors = checkpoint.optimizer();
  const std::string first_live = std::string(kLive) + "." + parameters.specs().front().name;
  if (tensors.find(first_live) != nullptr) restore(tensors, parameters, kLive, live_P);
  for (const auto& [name, flat_P] : optimizer.state()) restore(tensors, parameters, name, flat_P);
  for (const auto& [name, flat_P] : strategy.state()) restore(tensors, parameters, name, flat_P);
}

}  // namespace

RunState run_state_from_json(std::string_view text, const std::string& where) {
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (in.is_object() && in.value("format", json()) != kFormat) {
    fail(where, fmt::format("state.json has format {} and not {}",
                            in.value("format", json()).dump(), kFormat));
  }
  return struct_of<RunState>(in, fmt::format("checkpoint '{}': state.json is damaged", where));
}

RunState read_run_state(const std::filesystem::path& folder) {
  return with_advice([&] {
    const RunState state = run_state_from_json(read_file(folder / "state.json"), folder.string());
    if (state.step != step_of(folder)) {
      fail(folder, fmt::format("state.json is of step {}, which the folder's name does not say",
                               state.step));
    }
    return state;
  });
}

RunState restore_checkpoint(const std::filesystem::path& folder, int64_t last_step,
                            const Materials& materials, train::InnerOptimizer& optimizer,
                            sync::Strategy& strategy) {
  const auto [checkpoint, state] = open_checkpoint(folder, last_step, strategy.pace());
  if (state.store != materials.mixture.digest()) {
    throw InputError(
        fmt::format("checkpoint '{}' was trained on another token store than '{}' (their "
                    "digests differ); give --data the run's own, or start a new --run",
                    folder.string(), materials.mixture.folder().string()));
  }
  if (state.frozen != materials.frozen) {
    throw InputError(
        fmt::format("checkpoint '{}' is of an adapter of another model than that of --frozen "
                    "(their digests differ); give --frozen the run's own, or start a new --run",
                    folder.string()));
  }
  restore_tensors(checkpoint, materials.trained(), optimizer, strategy);
  if (parameter_digest(strategy.global_parameters()) != state.digest) {
    throw InputError(
        fmt::format("checkpoint '{}': the digest in state.json is not that of its model; remove "
                    "this folder to go on from the one before",
                    folder.string()));
  }
  optimizer.set_num_updates(state.num_updates);
  strategy.restore_held(state.held, state.applied);
  return state;
}

std::map<std::string, std::string> model_files(const Materials& materials) {
  const weights::ModelConfig& config = materials.model.config();
  if (materials.adapter != nullptr) {
    return {{weights::kAdapterConfigFile,
             weights::to_adapter_config(config, materials.adapter->config())}};
  }
  const auto& [mixture, tokenizer, model, texts, teacher, adapter, servers, frozen] = materials;
  std::map<std::string, std::string> files = texts.files;
  files["config.json"] = weights::to_hf_config(config, texts.ids);
  files["tokenizer.json"] = tokenizer.json();
  files.try_emplace("generation_config.json", weights::to_generation_config(texts.ids));
  files.try_emplace(
      "tokenizer_config.json",
      weights::to_tokenizer_config(
          config, tokenizer.token_bytes(static_cast<tokenizer::TokenId>(mixture.end_of_text()))));
  return files;
}

std::string model_files_digest(const Materials& materials) {
  Sha256 hash;
  for (const auto& [name, text] : model_files(materials)) {
    hash.update(fmt::format("{} {}\n", name, text.size()));
    hash.update(std::string_view(text));
  }
  return hex(hash.finish());
}

weights::CheckpointContents checkpoint_contents(const RunState& state, const run::RunConfig& config,
                                                const Materials& materials,
                                                train::InnerOptimizer& optimizer,
                                                sync::Strategy& strategy) {
  const data::Mixture& mixture = materials.mixture;
  weights::CheckpointContents contents{.step = state.step,
                                       .is_adapter = materials.adapter != nullptr};
  const auto add = [&](std::vector<weights::TensorView>& views, const std::string& prefix,
                       const at::Tensor& flat_P, Given given = Given::kInUse) {
    const at::Tensor host_P = on_host(flat_P);
    add_views(materials.trained(), prefix, host_P, given, views);
    contents.owners.push_back(std::make_shared<at::Tensor>(host_P));
  };
  const at::Tensor& live_P = materials.trained().values_P();
  const at::Tensor global_P = strategy.global_parameters();
  add(contents.model, "", global_P);
  if (state.step > 0 && !strategy.syncs_after(state.step)) add(contents.optimizer, kLive, live_P);
  for (const auto& [name, flat_P] : optimizer.state()) {
    // The optimiser spills what it has gathered, and that is no moment of its own.
    add(contents.optimizer, name, flat_P,
        model::is_spilled(flat_P) ? Given::kGathered : Given::kInUse);
  }
  for (const auto& [name, flat_P] : strategy.state()) add(contents.optimizer, name, flat_P);

  contents.files = model_files(materials);
  contents.complete = [state](weights::CheckpointContents& copied) {
    Sha256 hash;  // Here and not in the training thread: it takes a while.
    for (const auto& tensor : copied.model) {
      weights::read_in_pieces(tensor,
                              [&](std::span<const std::byte> piece) { hash.update(piece); });
    }
    RunState with_digest = state;
    with_digest.digest = hex(hash.finish());
    json file = json_of(with_digest);
    file["format"] = kFormat;
    copied.files["state.json"] = file.dump(1);
  };
  json order = {{"store", mixture.digest()},
                {"order", "numpy Generator(PCG64(seed + pass + 1)).shuffle"},
                {"seed", config.train.seed},
                {"sequence_length", config.train.sequence_length},
                {"batch_rows", config.train.batch_rows},
                {"next_step", state.step}};
  if (mixture.stores().size() > 1) {
    for (size_t i = 0; i < mixture.stores().size(); ++i) {
      order["mixture"].push_back(
          {{"store", mixture.stores()[i].info().digest()}, {"weight", mixture.weights()[i]}});
    }
  }
  contents.data_order = order.dump();
  return contents;
}

std::string parameter_digest(const at::Tensor& parameters_P) {
  const at::Tensor host_P = parameters_P.cpu().contiguous();
  return hex(weights::tensor_sha256(
      {.name = {},
       .shape = {host_P.numel()},
       .bytes = std::as_bytes(
           std::span(host_P.const_data_ptr<float>(), static_cast<size_t>(host_P.numel()))),
       .is_mapped = model::is_spilled(host_P)}));
}

}  // namespace atl::island
