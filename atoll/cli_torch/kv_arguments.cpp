#include "atoll/cli_torch/kv_arguments.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/name.h"
#include "atoll/base/quantity.h"
#include "atoll/base/sealing.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli_torch/swarm_place.h"
#include "atoll/identity/private_file.h"
#include "atoll/kv_model/planes.h"

namespace atl::cli {
namespace {

constexpr double kGib = int64_t{1} << 30;

/// Of whichever model. Throws InputError, which names the option.
LoadedProfile read_profile_file(const std::string& option, const std::string& file) {
  try {
    const MappedFile mapped(file);
    return {.profile = kv::read_profile(mapped.bytes()), .id = kv::profile_id(mapped.bytes())};
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: '{}': {}", option, file, error.what()));
  }
}

}  // namespace

void add_kv_store_arguments(CLI::App& command, KvStoreArguments& arguments) {
  command.add_option("--kv-store", arguments.folder,
                     "a folder for keys and values of texts, for those that begin as they did: "
                     "sealed, and there after a restart (default: in memory alone)");
  command.add_option("--kv-store-gib", arguments.disk_gib, "how much of them on disk, in GiB")
      ->check(real_number(0.001, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--kv-store-memory-gib", arguments.memory_gib,
                  "how much of them in memory, in GiB; 0: none (default: an eighth of --kv-gib)")
      ->check(real_number(0, 1 << 20));
}

void add_neighbour_arguments(CLI::App& command, KvStoreArguments& arguments) {
  command
      .add_option("--neighbour-rate", arguments.neighbour_rate,
                  "how fast copies of keys and values are sent to another server, which has them "
                  "if this one dies, at most, such as 20mbit; 0bit: none are")
      ->capture_default_str();
  command.add_option("--kv-profile", arguments.profile,
                     "a profile of the model's keys and values (atoll kv fit): they are kept "
                     "rounded beside the exact ones, for texts that may begin with such and wait "
                     "for another server's (atoll gateway --lossy-kv)");
}

LoadedProfile load_profile(const std::string& option, const std::string& file,
                           const std::string& digest) {
  LoadedProfile loaded = read_profile_file(option, file);
  if (loaded.profile.model == digest) return loaded;
  throw InputError(fmt::format(
      "{}: '{}' is of the model '{}', and this one is '{}'; fit one to it, with the same "
      "--dtype and --kv-dtype",
      option, file, printable(loaded.profile.model), digest));
}

std::shared_ptr<const serve::Rounding> rounding_of(const std::string& file,
                                                   const weights::ModelConfig& config,
                                                   const std::string& digest) {
  if (file.empty()) return nullptr;
  LoadedProfile loaded = load_profile("--kv-profile", file, digest);
  auto rounding = std::make_shared<serve::Rounding>();
  rounding->profile = std::move(loaded.profile);
  rounding->profile_id = loaded.id;
  rounding->turns = [config](int64_t begin, int64_t count) {
    return kv_model::turns_of(config, begin, count);
  };
  return rounding;
}

double neighbour_rate(const KvStoreArguments& arguments) {
  const std::string& text = arguments.neighbour_rate;
  for (const Unit& unit : kRateUnits) {
    if (text == fmt::format("0{}", unit.name)) return 0;
  }
  if (const auto bits = parse_quantity(text, kRateUnits)) return *bits / 8;
  throw UsageError(fmt::format(
      "--neighbour-rate: '{}' is no rate; write for example 20mbit, or 0bit for no copies", text));
}

void require_neighbour_arguments(const KvStoreArguments& arguments) {
  neighbour_rate(arguments);
  if (!arguments.profile.empty()) read_profile_file("--kv-profile", arguments.profile);
}

int64_t kv_store_memory(const KvStoreArguments& arguments, int64_t kv_bytes) {
  if (arguments.memory_gib < 0) return kv_bytes / 8;
  return static_cast<int64_t>(arguments.memory_gib * kGib);
}

serve::KvDeskOptions kv_desk_options(const KvStoreArguments& arguments, int64_t kv_bytes,
                                     const weights::ModelConfig& config,
                                     const std::string& digest) {
  // Before anything is made: GCC 12 destroys twice what an initialiser list had when it is left.
  auto rounding = rounding_of(arguments.profile, config, digest);
  const double bytes_per_s = neighbour_rate(arguments);
  return {.store = {.memory_bytes = kv_store_memory(arguments, kv_bytes),
                    .folder = arguments.folder,
                    .disk_bytes = static_cast<int64_t>(arguments.disk_gib * kGib)},
          .model = digest,
          .shape = {.num_heads = config.num_kv_heads, .head_size = config.head_size()},
          .rounding = std::move(rounding),
          .num_threads = at::get_num_threads(),
          .neighbour_rate = bytes_per_s};
}

std::unique_ptr<serve::KvDesk> own_kv_desk(const KvStoreArguments& arguments, int64_t kv_bytes,
                                           const weights::ModelConfig& config,
                                           const std::string& digest, const Clock& clock) {
  return std::make_unique<serve::KvDesk>(
      kv_desk_options(arguments, kv_bytes, config, digest),
      serve::KvDesk::Hooks{
          .send = [](const std::string&, const chain::Message&) {},
          .restored = [](const chain::Restore&, chain::Span, serve::FoundChunks) {},
          .tell = print_note},
      clock);
}

Digest new_secret(const std::filesystem::path& file) {
  const Digest secret = random_key();
  if (!file.empty()) identity::write_private_file(file, hex(secret) + "\n");
  return secret;
}

Digest kept_secret(const std::filesystem::path& file) {
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return new_secret(file);
  std::string text = identity::read_private_file(file);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  try {
    return digest_from_hex(text);
  } catch (const InputError&) {
    throw InputError(
        fmt::format("'{}' is no secret for keys and values: remove it, and another one is made",
                    file.string()));
  }
}

}  // namespace atl::cli
