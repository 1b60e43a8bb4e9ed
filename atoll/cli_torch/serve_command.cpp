// A model behind OpenAI's API, on this machine.
#include "atoll/cli_torch/serve_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/sampling_arguments.h"
#include "atoll/openai/service.h"
#include "atoll/serve/local_generator.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::cli {
namespace {

struct ServeArguments {
  ModelArguments model;
  bool gateway = false;
  std::string name;
  std::string chat_template;
  std::string keys;
  double kv_gib = 2;
  openai::ServiceOptions service;
};

constexpr const char* kFooter = R"(
One command, one address: whatever speaks OpenAI's API can use it, and a browser finds a page to
chat at / (docs/serving_api.md). Requests are answered together: each pass over the weights makes a
token of every answer. What prompts have in common is read once. On the CPU an answer has the same
tokens whatever else is asked meanwhile. Answers can be kept right by a JSON schema, and call tools
(docs/structured_output.md).

Other machines may ask over HTTPS (--certificate, --private-key) with a key (--keys: a file with
`NAME SECRET` on each line). --insecure lifts both. Ctrl-C ends it.

Examples:
  atoll serve my-model --gateway
  atoll serve model.gguf --gateway --listen 127.0.0.1:8080 --kv-gib 8
  curl http://127.0.0.1:8000/v1/completions -d '{"model": "my-model", "prompt": "Once"}')";

openai::ServedModel served(const ServeArguments& arguments, const LoadedModel& loaded) {
  const std::filesystem::path folder =
      tokenizer::ChatTemplate::place_beside(tokenizer_place(arguments.model, loaded));
  std::shared_ptr<const tokenizer::ChatTemplate> found;
  if (!arguments.chat_template.empty()) {
    found = std::make_shared<tokenizer::ChatTemplate>(
        tokenizer::ChatTemplate::load(folder, arguments.chat_template));
  } else if (auto own = tokenizer::ChatTemplate::load(folder)) {
    found = std::make_shared<tokenizer::ChatTemplate>(std::move(*own));
  }
  openai::ServedModel model{
      .name = arguments.name,
      .generator = std::make_shared<serve::LocalGenerator>(
          loaded.model, serve::EngineOptions{.kv_bytes = static_cast<int64_t>(arguments.kv_gib *
                                                                              (int64_t{1} << 30))}),
      .tokenizer = {std::shared_ptr<const LoadedModel>(), &loaded.tokenizer},
      .chat_template = found,
      .ends = found == nullptr ? end_ids(loaded) : end_ids(loaded, *found),
      .special_tokens = tokenizer::special_tokens_of(folder)};
  const auto sources = tokenizer::template_sources_of(folder);
  if (const auto source = sources.find("default"); source != sources.end()) {
    model.chat_template_text = source->second.text;
  }
  return model;
}

void serve_model(ServeArguments arguments) {
  if (!arguments.gateway) {
    throw UsageError("say --gateway: servers of a part of a model's layers are still to come");
  }
  if (arguments.name.empty()) {
    arguments.name =
        std::filesystem::path(arguments.model.model).lexically_normal().stem().string();
  }
  if (!arguments.keys.empty()) {
    arguments.service.keys = openai::read_keys(read_file(arguments.keys), arguments.keys);
  }
  watch_interrupts();
  const LoadedModel loaded = load_model(arguments.model);
  arguments.service.models.push_back(served(arguments, loaded));
  const SystemClock clock;
  const openai::Service service(std::move(arguments.service), clock);
  fmt::print("'{}' is served at {} (a page to chat: {}/)\n", arguments.name, service.url(),
             service.url());
  flush_standard_output();
  while (num_interrupts() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto* command = app.add_subcommand("serve", "Serve a model behind OpenAI's API");
  auto arguments = std::make_shared<ServeArguments>();
  add_model_arguments(*command, arguments->model);
  openai::ServiceOptions& service = arguments->service;
  command->add_flag("--gateway", arguments->gateway, "answer requests, all of the model here");
  command->add_option("--listen", service.listen, "HOST:PORT; port 0: a free one")
      ->capture_default_str();
  command->add_option("--name", arguments->name, "the model's in requests (default: its file's)");
  command->add_option("--template", arguments->chat_template,
                      "another chat template: a file, or chatml, llama3, plain");
  command->add_option("--kv-gib", arguments->kv_gib, "memory for keys and values, in GiB")
      ->check(real_number(0.001, 1 << 20))
      ->capture_default_str();
  command->add_option("--keys", arguments->keys, "a file with API keys: NAME SECRET [SHARE]");
  command->add_option("--certificate", service.certificate_file, "for HTTPS: a chain in PEM");
  command->add_option("--private-key", service.private_key_file, "for HTTPS: its key in PEM");
  command->add_flag("--insecure", service.insecure,
                    "other machines may ask without a key and in the clear");
  command->footer(kFooter);
  command->callback([arguments] { serve_model(std::move(*arguments)); });
}

}  // namespace atl::cli
