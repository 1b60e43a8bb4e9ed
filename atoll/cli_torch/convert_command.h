#pragma once

namespace CLI {
class App;
}

namespace atl::cli {

/// `atoll convert`: a model into a Hugging Face folder.
void add_convert_command(CLI::App& app);

}  // namespace atl::cli
