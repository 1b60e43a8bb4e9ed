#pragma once
// `atoll serve`: a model behind OpenAI's API.
namespace CLI {
class App;
}

namespace atl::cli {
void add_serve_command(CLI::App& app);
}
