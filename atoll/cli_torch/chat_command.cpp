// A conversation with a model in the terminal, or through a pipe: a line in, an answer out.
#include "atoll/cli_torch/chat_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/sampling_arguments.h"
#include "atoll/serve/generate.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/chat_template.h"
#include "atoll/tokenizer/text_stream.h"

namespace atl::cli {
namespace {

struct ChatArguments {
  ModelArguments model;
  SamplingArguments sampling;
  std::string system;
  std::string chat_template;
  bool json = false;
};

constexpr const char* kFooter = R"(
Each line is a message to the model; its answer appears as it is made. Lines that begin with / are
commands: /reset forgets the conversation, /quit ends (as does Ctrl-D), /help lists them. Ctrl-C
ends an answer; a second one, or one while it waits for a message, ends the program. What the model
has read already is not read again.

The model's own chat template is used. A model without one needs --template: a file in Jinja2's
language, or chatml, llama3, plain ("User: ...", for models that were never taught to chat).
--json prints, for each message, one line with text, ids, finish_reason and prompt_tokens,
reused_tokens.

Examples:
  atoll chat my-model --system "Answer briefly." --temperature 0.7 --min-p 0.05
  atoll chat runs/demo --template plain --stop "User:"
  echo "What is 2 + 2?" | atoll chat my-model --greedy)";

constexpr const char* kHelp =
    "/reset  forget the conversation\n/quit   end (or Ctrl-D)\n/help   this list\n";

class Conversation {
 public:
  Conversation(const ChatArguments& arguments, const LoadedModel& loaded)
      : arguments_(arguments),
        loaded_(loaded),
        template_(tokenizer::ChatTemplate::beside(tokenizer_place(arguments.model, loaded),
                                                  arguments.chat_template)),
        options_(sampling_options(arguments.sampling, loaded)),
        engine_(loaded.model,
                serve::engine_options(loaded.model, std::array{loaded.model.config().context()},
                                      options_.max_guesses)) {
    options_.ends = end_ids(loaded, template_);
    reset();
  }

  void reset() {
    chat_.messages = nlohmann::ordered_json::array();
    chat_.add_generation_prompt = true;
    if (!arguments_.system.empty()) add("system", arguments_.system);
  }

  /// A message and the model's answer, which is printed. A message that the model cannot answer is
  /// forgotten, and said why.
  void say(const std::string& message) {
    add("user", message);
    warn_of_loss(message);
    try {
      answer();
    } catch (const InputError& error) {
      chat_.messages.erase(chat_.messages.size() - 1);
      if (!::isatty(STDIN_FILENO)) throw;
      fmt::print(stderr, "atoll: {}\n", error.what());
    }
  }

 private:
  void add(const char* role, const std::string& content) {
    chat_.messages.push_back({{"role", role}, {"content", content}});
  }

  void warn_of_loss(const std::string& message) const {
    tokenizer::Encoder encoder(loaded_.tokenizer);
    std::vector<tokenizer::TokenId> ids;
    encoder.encode(message, tokenizer::SpecialText::kToken, ids);
    warn_lost(encoder);
  }

  /// The conversation's ids.
  std::vector<int64_t> prompt() const {
    const auto ids = tokenizer::ChatTemplate::encode(loaded_.tokenizer, template_.render(chat_));
    std::vector<int64_t> prompt(ids.begin(), ids.end());
    if (prompt.empty()) throw InputError("the chat template makes no text of the conversation");
    const int64_t context = loaded_.model.config().context();
    if (std::ssize(prompt) >= context) {
      throw InputError(
          fmt::format("the conversation has {} tokens and the model's context {}: begin a new one "
                      "(/reset)",
                      prompt.size(), context));
    }
    return prompt;
  }

  void answer() {
    const std::vector<std::vector<int64_t>> prompts{prompt()};
    tokenizer::TextStream stream(arguments_.sampling.stops);
    std::string text;
    const auto show = [&](const std::string& part) {
      text += part;
      if (arguments_.json) return;
      fmt::print("{}", part);
      flush_standard_output();
    };
    bool is_interrupted = false;
    const auto token = [&](size_t /*row*/, int64_t id) {
      show(stream.add(loaded_.tokenizer.bytes_or_none(id)));
      is_interrupted = num_interrupts() > 0;
      return !is_interrupted && !stream.is_stopped();
    };
    const auto found =
        serve::generate(engine_, prompts, options_, {.token = token, .ended = {}})[0];
    show(stream.finish());
    add("assistant", text);
    if (arguments_.json) {
      const nlohmann::ordered_json json{{"text", text},
                                        {"ids", found.ids},
                                        {"finish_reason", decoding::name_of(found.reason)},
                                        {"prompt_tokens", prompts[0].size()},
                                        {"reused_tokens", found.num_cached}};
      fmt::print("{}\n", json.dump());
    } else {
      fmt::print("\n");
    }
    flush_standard_output();
    const bool is_full =
        found.reason == serve::FinishReason::kLength && std::ssize(found.ids) < options_.max_tokens;
    if (is_interrupted) fmt::print(stderr, "atoll: the answer was stopped\n");
    if (is_full) {
      fmt::print(stderr, "atoll: the answer was cut: the model's context of {} is full (/reset)\n",
                 loaded_.model.config().context());
    }
  }

  const ChatArguments& arguments_;
  const LoadedModel& loaded_;
  const tokenizer::ChatTemplate template_;
  serve::GenerateOptions options_;
  tokenizer::Chat chat_;
  serve::Engine engine_;  // What it has read of the conversation it does not read again.
};

/// False at /quit.
bool run_command(const std::string& line, Conversation& conversation) {
  if (line == "/quit") return false;
  if (line == "/reset") {
    conversation.reset();
  } else {
    if (line != "/help") fmt::print(stderr, "atoll: there is no command '{}'\n", line);
    fmt::print(stderr, "{}", kHelp);
  }
  return true;
}

void chat(const ChatArguments& arguments) {
  decoding::check(arguments.sampling.options.sampler);
  tokenizer::TextStream check_stops(arguments.sampling.stops);
  const LoadedModel loaded = load_model(arguments.model);
  Conversation conversation(arguments, loaded);
  const bool is_terminal = ::isatty(STDIN_FILENO) != 0;
  std::string line;
  while (true) {
    if (is_terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (text::valid_utf8_prefix(line) != line.size()) {
      throw InputError("a message is not UTF-8");
    }
    if (line.starts_with('/')) {
      if (!run_command(line, conversation)) break;
      continue;
    }
    const InterruptsWatched watched;
    conversation.say(line);
  }
  if (is_terminal) fmt::print(stderr, "\n");
}

}  // namespace

void add_chat_command(CLI::App& app) {
  auto* command = app.add_subcommand("chat", "Talk with a model");
  auto arguments = std::make_shared<ChatArguments>();
  add_model_arguments(*command, arguments->model);
  command->add_option("--system", arguments->system, "how the model should behave");
  command->add_option("--template", arguments->chat_template,
                      "another chat template: a file, or chatml, llama3, plain");
  add_sampling_arguments(*command, arguments->sampling);
  command->add_flag("--json", arguments->json, "print one JSON object for each answer");
  command->footer(kFooter);
  command->callback([arguments] { chat(*arguments); });
}

}  // namespace atl::cli
