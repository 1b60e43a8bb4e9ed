#pragma once
// `atoll data order`: recomputes the data orders that NeoX, OLMo and OLMo-core publish.

namespace CLI {
class App;
}

namespace atl::cli {

void add_data_order(CLI::App& data);

}  // namespace atl::cli
