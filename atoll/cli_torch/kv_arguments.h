#pragma once
// What the commands that keep keys and values of texts share: where, how much, and by what secret.
#include <filesystem>
#include <memory>
#include <string>

#include "atoll/base/hash.h"
#include "atoll/kv/blob_store.h"
#include "atoll/kv/profile.h"
#include "atoll/serve/kv_desk.h"
#include "atoll/weights/config.h"

namespace CLI {
class App;
}

namespace atl::cli {

struct KvStoreArguments {
  std::string folder;  // Empty: in memory alone.
  double disk_gib = 8;
  double memory_gib = -1;  // Below 0: an eighth of what keys and values of texts under way have.
  std::string neighbour_rate = "100mbit";
  std::string profile;  // Of what may be rounded; empty: nothing is.
};

/// --kv-store, --kv-store-gib, --kv-store-memory-gib.
void add_kv_store_arguments(CLI::App& command, KvStoreArguments& arguments);
/// --neighbour-rate, --kv-profile.
void add_neighbour_arguments(CLI::App& command, KvStoreArguments& arguments);

/// What is wrong with their words is said before a model is read. Throws UsageError, InputError.
void require_neighbour_arguments(const KvStoreArguments& arguments);
/// --neighbour-rate in bytes a second; 0: no copies are sent. Throws UsageError.
double neighbour_rate(const KvStoreArguments& arguments);

/// Of a process with so many bytes for keys and values of texts under way.
int64_t kv_store_memory(const KvStoreArguments& arguments, int64_t kv_bytes);

/// For servers of a model of that digest. Throws UsageError.
serve::KvDeskOptions kv_desk_options(const KvStoreArguments& arguments, int64_t kv_bytes,
                                     const weights::ModelConfig& config, const std::string& digest);

/// For a model that is served here alone. Throws UsageError.
std::unique_ptr<serve::KvDesk> own_kv_desk(const KvStoreArguments& arguments, int64_t kv_bytes,
                                           const weights::ModelConfig& config,
                                           const std::string& digest, const Clock& clock);

/// By that profile, of a model of that digest; null without a file. Throws InputError, which names
/// --kv-profile.
std::shared_ptr<const serve::Rounding> rounding_of(const std::string& file,
                                                   const weights::ModelConfig& config,
                                                   const std::string& digest);

struct LoadedProfile {
  kv::Profile profile;
  uint64_t id = 0;
};

/// Of a model of that digest. Throws InputError, which names the option.
LoadedProfile load_profile(const std::string& option, const std::string& file,
                           const std::string& digest);

/// What that file holds; where there is none it is made, of a new secret. Throws InputError.
Digest kept_secret(const std::filesystem::path& file);
/// Another one, in that file; in none where its name is empty.
Digest new_secret(const std::filesystem::path& file);

}  // namespace atl::cli
