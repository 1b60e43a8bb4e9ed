#pragma once
// `atoll eval`: how well a model predicts a text or a token store.
namespace CLI {
class App;
}

namespace atl::cli {
void add_eval_command(CLI::App& app);
}
