#pragma once
// The few Python functions that tasks of lm-evaluation-harness call (`!function
// utils.process_docs`), in C++. No Python is run: a function is known by the text of its file.
#include <filesystem>
#include <string>

#include "atoll/tasks/json.h"

namespace atl::tasks {

/// A `!function module.name` of a task file as a value: {"!function": "module.name", "file": where
/// the module lies}.
Json function_value(const std::string& name, const std::filesystem::path& folder);
bool is_function(const Json& value);
/// Whether there is one anywhere in it.
bool has_function(const Json& value);

/// What makes something of one document.
using NativeFunction = Json (*)(const Json& document);

struct PythonFunction {
  NativeFunction call = nullptr;
  std::string source;  // Its text in Python, as lm-evaluation-harness prints it.
};

/// The function that a value names. Throws InputError naming the function and its file where that
/// cannot be read or is not, but for comments and empty lines, the one whose functions are here: a
/// function may mean anything that its file makes of it.
PythonFunction known_function(const Json& value);

}  // namespace atl::tasks
