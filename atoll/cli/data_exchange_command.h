#pragma once
// `atoll data import` and `atoll data export`: Megatron's and OLMo's files to token stores, token
// stores to Megatron's.

namespace CLI {
class App;
}

namespace atl::cli {

void add_data_import(CLI::App& data);
void add_data_export(CLI::App& data);

}  // namespace atl::cli
