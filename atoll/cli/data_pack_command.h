#pragma once
// `atoll data pack` and `atoll data merge`: text to token stores, shards to one.

namespace CLI {
class App;
}

namespace atl::cli {

void add_data_pack(CLI::App& data);
void add_data_merge(CLI::App& data);

}  // namespace atl::cli
