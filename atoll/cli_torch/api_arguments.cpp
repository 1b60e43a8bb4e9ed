#include "atoll/cli_torch/api_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <thread>
#include <utility>

#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/cli/whole_number.h"
#include "atoll/cli_torch/sampling_arguments.h"
#include "atoll/serve/adapted_generator.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::cli {
namespace {

constexpr auto kNap = std::chrono::milliseconds(100);
constexpr auto kForLastWords = std::chrono::milliseconds(500);  // Of answers under way.

openai::ServedModel served(const ApiArguments& arguments, const ModelArguments& where,
                           const LoadedModel& loaded,
                           std::shared_ptr<decoding::Generator> generator) {
  const std::filesystem::path folder =
      tokenizer::ChatTemplate::place_beside(tokenizer_place(where, loaded));
  std::shared_ptr<const tokenizer::ChatTemplate> found;
  if (!arguments.chat_template.empty()) {
    found = std::make_shared<tokenizer::ChatTemplate>(
        tokenizer::ChatTemplate::load(folder, arguments.chat_template));
  } else if (auto own = tokenizer::ChatTemplate::load(folder)) {
    found = std::make_shared<tokenizer::ChatTemplate>(std::move(*own));
  }
  openai::ServedModel model{.name = arguments.name,
                            .generator = std::move(generator),
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

}  // namespace

std::string usual_name(const ModelArguments& model) {
  return std::filesystem::path(model.model).lexically_normal().stem().string();
}

void add_api_arguments(CLI::App& command, ApiArguments& arguments) {
  openai::ServiceOptions& service = arguments.service;
  command.add_option("--listen", service.listen, "HOST:PORT; port 0: a free one")
      ->capture_default_str();
  command.add_option("--name", arguments.name, "the model's in requests (default: its file's)");
  command.add_option("--template", arguments.chat_template,
                     "another chat template: a file, or chatml, llama3, plain");
  command.add_option("--keys", arguments.keys, "a file with API keys: NAME SECRET [SHARE]");
  command.add_option("--certificate", service.certificate_file, "for HTTPS: a chain in PEM");
  command.add_option("--private-key", service.private_key_file, "for HTTPS: its key in PEM");
  command
      .add_option("--max-running", service.limits.shares.running,
                  "texts that are made at once; requests beyond wait")
      ->check(whole_number<int64_t>(1, 4096))
      ->capture_default_str();
  command.add_flag("--insecure", service.insecure,
                   "other machines may ask without a key and in the clear");
}

void answer_requests(ApiArguments arguments, const ModelArguments& model, const LoadedModel& loaded,
                     const std::shared_ptr<serve::TextDesk>& generator, const Clock& clock) {
  if (arguments.name.empty()) arguments.name = usual_name(model);
  if (!arguments.keys.empty()) {
    arguments.service.keys = openai::read_keys(read_file(arguments.keys), arguments.keys);
  }
  openai::ServedModel plain = served(arguments, model, loaded, generator);
  arguments.service.models.push_back(plain);
  for (size_t i = 0; i < arguments.adapter_names.size(); ++i) {
    plain.name = arguments.adapter_names[i];
    plain.generator = std::make_shared<serve::AdaptedGenerator>(generator, i + 1);
    arguments.service.models.push_back(plain);
  }
  const openai::Service service(std::move(arguments.service), clock);
  if (!generator->is_served()) {
    fmt::print("'{}' is awaited from its servers, for requests at {}\n", arguments.name,
               service.url());
    flush_standard_output();
  }
  bool is_told = false;
  while (num_interrupts() == 0) {
    if (generator->is_served() && !std::exchange(is_told, true)) {
      fmt::print("'{}' is served at {} (a page to chat: {}/)\n", arguments.name, service.url(),
                 service.url());
      flush_standard_output();
    }
    std::this_thread::sleep_for(kNap);
  }
  generator->shut_down("the server is shut down");
  std::this_thread::sleep_for(kForLastWords);
}

}  // namespace atl::cli
