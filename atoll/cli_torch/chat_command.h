#pragma once

namespace CLI {
class App;
}

namespace atl::cli {

void add_chat_command(CLI::App& app);

}  // namespace atl::cli
