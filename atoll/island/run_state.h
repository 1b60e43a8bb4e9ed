#pragma once
// What a checkpoint of a run holds, and how it comes back. model.safetensors is always the
// published model (the global copy); optimizer.safetensors holds the moments, the strategy's
// tensors and, when they differ from the published ones, the live parameters. docs/formats.md has
// the names.
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/fields.h"
#include "atoll/base/hash.h"
#include "atoll/island/materials.h"
#include "atoll/run/config.h"
#include "atoll/sync/strategy.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/weights/checkpoint.h"

namespace atl::island {

/// state.json.
struct RunState {
  int64_t step = 0;
  int64_t num_updates = 0;
  double train_loss = 0;
  double val_loss_start = 0;
  double val_loss_island = 0;
  /// SHA-256 of the published parameters, which islands that resume together compare. Filled in by
  /// the checkpoint writer.
  std::string digest;
  std::vector<Digest> held;      // Of the published state, by fragment (sync::Strategy::held()),
  std::vector<int64_t> applied;  // and its newest rounds (sync::Strategy::applied()).
  std::string store;             // Digest of the token store: other data would be another run.
  std::string frozen;            // Of the model that stays as it is; empty: it is trained.
  // What the run uses, where its settings say "auto".
  std::string codec;
  int64_t fragment_sync_delay = 0;
  /// As the commit of `step` left it, and no step since: nothing is on its way.
  bool at_commit = false;
  bool joined = false;    // This island came in the middle of the run.
  bool left = false;      // It has left with this checkpoint, and skips rounds behind it.
  bool abstains = false;  // From the next round: a step since the last one was not finite.
  std::vector<int64_t> abstained_rounds;  // On their way, with weight 0.

  void visit(auto&& field) {
    field("step", step), field("num_updates", num_updates), field("train_loss", train_loss);
    field("val_loss_start", val_loss_start), field("val_loss_island", val_loss_island);
    field("digest", digest), field("held", held, MayLack{}), field("applied", applied, MayLack{});
    field("store", store), field("frozen", frozen, LeftOutWhenNew{}), field("codec", codec);
    field("fragment_sync_delay", fragment_sync_delay), field("at_commit", at_commit, MayLack{});
    field("joined", joined, MayLack{}), field("left", left, LeftOutWhenNew{});
    field("abstains", abstains), field("abstained_rounds", abstained_rounds, MayLack{});
  }
};

/// Throws InputError naming `where`.
RunState run_state_from_json(std::string_view text, const std::string& where);

/// The state in `folder`/state.json, whose step must be the one in the folder's name. Throws
/// InputError.
RunState read_run_state(const std::filesystem::path& folder);

/// Brings what a checkpoint of a run of `last_step` steps holds back into the live objects. All of
/// it is verified first: its tensors and files against its manifest, its manifest and its state
/// against each other, the folder's name and the run's data. Throws InputError saying what is wrong
/// and how to go on.
RunState restore_checkpoint(const std::filesystem::path& folder, int64_t last_step,
                            const Materials& materials, train::InnerOptimizer& optimizer,
                            sync::Strategy& strategy);

/// A checkpoint's files that are the model's and not tensors, by name: the same at every step.
std::map<std::string, std::string> model_files(const Materials& materials);
/// Names them: islands of one run write the same.
std::string model_files_digest(const Materials& materials);

/// Views of everything a checkpoint needs; no tensor is copied (but from a device).
weights::CheckpointContents checkpoint_contents(const RunState& state, const run::RunConfig& config,
                                                const Materials& materials,
                                                train::InnerOptimizer& optimizer,
                                                sync::Strategy& strategy);

/// SHA-256 of the parameters' bytes in hexadecimal: what islands compare.
std::string parameter_digest(const at::Tensor& parameters_P);

}  // namespace atl::island
