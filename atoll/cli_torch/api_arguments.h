#pragma once
// What the commands share that answer OpenAI's API (`atoll serve --gateway`, `atoll gateway`).
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/openai/service.h"
#include "atoll/serve/text_desk.h"

namespace atl::cli {

struct ApiArguments {
  std::string name;                             // The model's in requests; empty: its file's.
  std::vector<std::string> adapter_names = {};  // In requests, of the generator's adapters.
  std::string chat_template;
  std::string keys;
  openai::ServiceOptions service;
};

/// --listen, --name, --template, --keys, --certificate, --private-key, --max-running, --insecure.
void add_api_arguments(CLI::App& command, ApiArguments& arguments);

/// Answers until the user ends it; who waits for an answer then is told so. Throws UsageError,
/// InputError.
void answer_requests(ApiArguments arguments, const ModelArguments& model, const LoadedModel& loaded,
                     const std::shared_ptr<serve::TextDesk>& generator, const Clock& clock);

/// What a model is called whose user has given it no name.
std::string usual_name(const ModelArguments& model);

}  // namespace atl::cli
