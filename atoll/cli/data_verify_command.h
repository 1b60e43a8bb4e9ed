#pragma once
// `atoll data info` and `atoll data verify`: token stores, Megatron stores, .npy files.
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace atl::cli {

void add_data_info(CLI::App& data);
void add_data_verify(CLI::App& data);

/// What a --sha256 option is compared with.
struct NamedHash {
  std::string name;
  std::string sha256;
};
/// Throws UsageError where `wanted` is no SHA-256, InputError where none of `found` has it.
void require_hash(const std::string& wanted, const std::vector<NamedHash>& found);

}  // namespace atl::cli
