#include "atoll/group/command.h"

#include <array>

#include "atoll/base/fields_json.h"

namespace atl::group {

constexpr auto names_of(Command::Kind /*kind*/) {
  return std::array{"asked", "begin", "values", "gradient", "update", "gather", "scatter"};
}

std::string to_text(Command command) { return json_of(command).dump(); }

Command command_in(const std::string& text) {
  return struct_in<Command>(text, "what process 0 of this island says");
}

}  // namespace atl::group
