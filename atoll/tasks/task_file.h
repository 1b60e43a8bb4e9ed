#pragma once
// Task files of lm-evaluation-harness as they are written: YAML as PyYAML understands it (YAML 1.1:
// `yes` is true), or JSON. What the settings mean is tasks/task.h's.
#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/tasks/json.h"

namespace atl::tasks {

/// The settings of a YAML text; `name` appears in messages, and `!function` names files beside it
/// (python_functions.h). Throws InputError: not YAML, not a mapping, a key twice, another tag, over
/// the bounds on depth and size.
Json parse_task_yaml(std::string_view text, const std::string& name);

/// The settings of a file (JSON where its name ends in .json), `include`d files merged in: keys of
/// the file win over those it includes, later includes over earlier ones. Throws InputError, also
/// where files include each other in a circle.
Json read_task_file(const std::filesystem::path& file);

}  // namespace atl::tasks
