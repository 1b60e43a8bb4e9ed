#include "atoll/island/following.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/event.h"
#include "atoll/data/mixture.h"
#include "atoll/island/checkpoints.h"
#include "atoll/island/materials.h"
#include "atoll/island/out_of_memory.h"
#include "atoll/island/training_run.h"
#include "atoll/model/torch_error.h"
#include "atoll/run/own_share.h"
#include "atoll/run/run_folder.h"
#include "atoll/train/unit_gradient.h"

namespace atl::island {
namespace {

using group::Command;
using Kind = Command::Kind;

constexpr const char* kLeadersSettings = "the settings of this island's process 0";

/// Settings that may differ among the processes: what each machine has, and how long one waits.
constexpr auto kOwn = std::to_array<std::string_view>(
    {"data.path", "train.threads", "train.device", "train.process_timeout", "swarm.join_patience",
     "swarm.return_patience"});

/// Throws where this process was asked for something else than process 0. What was asked, not what
/// became of it: process 0 has filled in what a file leaves to the data or to a model.
void require_same(const run::ProcessPlace& place, const std::string& leaders, const Asked& asked) {
  run::RunConfig theirs;
  theirs.settings().apply_toml(leaders, kLeadersSettings);
  run::RunConfig own = run::load_config(asked.config_file, asked.overrides);
  const SettingList mine = own.settings();
  const SettingList told = theirs.settings();
  for (const Setting& setting : told.settings()) {
    if (std::ranges::find(kOwn, setting.name()) != kOwn.end()) continue;
    const auto same = std::ranges::find(mine.settings(), setting.name(), &Setting::name);
    if (same->text() == setting.text()) continue;
    throw UsageError(
        fmt::format("process {} of this island was started with {} = {}, and process 0 has {}; "
                    "start all with the same command",
                    place.rank, setting.name(), same->text(), setting.text()));
  }
}

/// The leader's settings, with this machine's own where this process was asked for some.
run::RunConfig own_config(const std::string& leaders, const Asked& asked,
                          const run::ProcessPlace& place) {
  run::RunConfig config;
  config.settings().apply_toml(leaders, kLeadersSettings);
  config.train.threads = 0;
  if (config.train.device.starts_with("cuda")) config.train.device = "cuda";
  run::RunConfig own = config;
  run::apply(own, asked.config_file, asked.overrides);
  // Of text that process 0 packed, the store is where it says.
  if (data::holds_tokens(own.data.path)) config.data.path = own.data.path;
  config.train.threads = own.train.threads;
  config.train.device = own.train.device;
  run::take_own_share(config.train, place);
  return config;
}

/// What this process has of a training run.
class Followed {
 public:
  Followed(group::Processes& processes, run::RunConfig config, const Command& begin)
      : place_(processes.place()),
        config_(std::move(config)),
        materials_(gather(
            config_, {}, {}, nullptr, [](const Event&) {}, processes.place())),
        learner_(checked_learner(begin)),
        share_(processes, *learner_, config_.train, begin.changes_gradient),
        whole_(share_, *learner_),
        gradient_(whole_, materials_.mixture, config_.train, begin.num_units) {}

  void obey(const Command& command) {
    switch (command.kind) {
      case Kind::kAsked:
      case Kind::kBegin:
        break;
      case Kind::kValues:
        return share_.take_values();
      case Kind::kGradient:
        share_.clear_gradients();
        with_memory_advice(config_, materials_.model.device(), place_,
                           [&] { gradient_.add(command.unit); });
        return;
      case Kind::kUpdate:
        return share_.update(command.number, {.lr = command.lr,
                                              .weight_decay = command.weight_decay,
                                              .gradient_scale = command.factor});
      case Kind::kGather:
        share_.gather_moments();
        return;
      case Kind::kScatter:
        return share_.take_moments({});
    }
  }

 private:
  /// What UnitGradient has the batches of a unit go to.
  class Whole final : public train::Learner {
   public:
    Whole(group::Share& share, train::Learner& learner) : share_(share), learner_(learner) {}
    const model::Parameters& parameters() const override { return learner_.parameters(); }
    double add_gradients(std::span<const train::Batch> batches, double scale) override {
      ATOLL_CHECK(scale == 1);
      return share_.add_gradients(batches).loss;
    }
    double cross_entropy(const train::Batch& batch) override {
      return learner_.cross_entropy(batch);
    }

   private:
    group::Share& share_;
    train::Learner& learner_;
  };

  std::unique_ptr<train::Learner> checked_learner(const Command& begin) {
    if (materials_.mixture.digest() != begin.data) {
      throw InputError(
          fmt::format("'{}' is another token store here than process 0 of this island has (their "
                      "digests differ)",
                      config_.data.path));
    }
    return make_learner(materials_, config_.train);
  }

  run::ProcessPlace place_;
  run::RunConfig config_;
  Materials materials_;
  const std::unique_ptr<train::Learner> learner_;
  group::Share share_;
  Whole whole_;
  train::UnitGradient gradient_;
};

}  // namespace

run::ProcessPlace place_of(const group::Processes* processes) {
  return processes != nullptr ? processes->place() : run::ProcessPlace{};
}

std::unique_ptr<group::Leader> make_leader(const TrainingParts& parts) {
  if (parts.processes == nullptr) return nullptr;
  run::RunConfig config = parts.config;
  if (config.adapter.is_remote()) {
    throw UsageError(
        "adapter.servers: an island whose layers servers have is one process; leave "
        "--processes-per-island out");
  }
  // The others' machines know it by no shorter name.
  config.data.path = std::filesystem::absolute(config.data.path).string();
  return std::make_unique<group::Leader>(group::LeaderParts{
      .processes = *parts.processes,
      .learner = make_learner(parts.materials, parts.config.train),
      .options = parts.config.train,
      .changes_gradient = method::method_of(config.sync).reduces_gradients,
      .begin = {.settings = config.settings().dump(/*with_help=*/false),
                .data = parts.materials.mixture.digest(),
                .num_units = parts.averager.num_members()},
      .spill_folder = spill_folder(parts.folder, config.train, parts.processes->size())});
}

void tell_asked(group::Processes& processes, const Asked& asked) {
  run::RunConfig config = run::load_config(asked.config_file, asked.overrides);
  processes.tell(group::to_text(
      {.kind = Kind::kAsked, .settings = config.settings().dump(/*with_help=*/false)}));
}

void follow(group::Processes& processes, const Asked& asked) {
  try {
    std::optional<Followed> followed;
    while (const auto text = processes.hear()) {
      const Command command = group::command_in(*text);
      if (command.kind == Kind::kAsked) {
        require_same(processes.place(), command.settings, asked);
      } else if (command.kind == Kind::kBegin) {
        followed.reset();  // First: there may be no room for two.
        followed.emplace(processes, own_config(command.settings, asked, processes.place()),
                         command);
        processes.ready();
      } else {
        if (!followed) throw InputError("process 0 of this island began with no training run");
        followed->obey(command);
      }
    }
  } catch (const OutOfMemory& error) {
    const std::string reason = outside_of_passes(error.what());
    processes.fail(reason);
    throw InputError(reason);
  } catch (const c10::Error& error) {
    const std::string reason = reason_of(error);
    processes.fail(reason);
    throw InputError(reason);
  } catch (const std::exception& error) {
    processes.fail(error.what());
    throw;
  }
}

}  // namespace atl::island
