#pragma once
// What the program with LibTorch says of this machine, asked by the one without: each measurement
// has a process of its own, so that memory and threads of one do not touch the next.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace atl::cli {

/// The JSON object that `atoll-torch WORDS...` prints; `waits` is called some times a second
/// meanwhile. Throws InputError with the last lines of what it said when it fails (UsageError
/// where it was asked for what cannot be), and when the user interrupts.
nlohmann::json torch_answer(const std::vector<std::string>& words,
                            const std::function<void()>& waits);

/// The same of several programs that run at once, as an island's processes do.
std::vector<nlohmann::json> torch_answers(const std::vector<std::vector<std::string>>& commands,
                                          const std::function<void()>& waits);

}  // namespace atl::cli
