#pragma once
// `atoll data import` and `atoll data export`: Megatron's files to token stores and back.

namespace CLI {
class App;
}

namespace atl::cli {

void add_data_import(CLI::App& data);
void add_data_export(CLI::App& data);

}  // namespace atl::cli
