#pragma once
// What the commands that make text share: how tokens are chosen, and where a text ends.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/cli_torch/model_arguments.h"
#include "atoll/serve/generate.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::cli {

struct SamplingArguments {
  serve::GenerateOptions options;
  std::vector<std::string> stops;
  bool greedy = false;
};

/// --max-tokens, --greedy, --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --stop,
/// --seed, --max-guesses.
void add_sampling_arguments(CLI::App& command, SamplingArguments& arguments);
/// --max-guesses: serve::EngineOptions.
void add_guesses_argument(CLI::App& command, int64_t& max_guesses);

/// The options for this model. Throws UsageError where one is out of range.
serve::GenerateOptions sampling_options(const SamplingArguments& arguments,
                                        const LoadedModel& loaded);

/// The ids that end a text: those of config.json and generation_config.json, or else the
/// tokenizer's. May be empty: then only --max-tokens and the context end it.
std::vector<int64_t> end_ids(const LoadedModel& loaded);
/// And those that end a turn of a chat.
std::vector<int64_t> end_ids(const LoadedModel& loaded, const tokenizer::ChatTemplate& chat);

}  // namespace atl::cli
