// The API over a generator without a model, for gateway_test.py: it prints its address and serves
// until its input ends.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/openai/service.h"
#include "atoll/testing/fake_generator.h"
#include "atoll/testing/sample_tokenizer.h"

namespace {

struct Arguments {
  std::string folder;  // The tokenizer and a chat template are written here.
  std::string keys;
  std::string tools = "<tool_call>";  // How the template has them called; empty: it knows none.
  int64_t context = 256;
  int64_t token_ms = 0;
  int64_t ping_ms = 10'000;
};

atl::openai::ServedModel fake_model(const Arguments& arguments) {
  const std::filesystem::path folder = arguments.folder;
  const std::string calls =
      "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments.city }}{% endfor %}";
  const std::string chat_template =
      (arguments.tools.empty() ? ""
                               : "{# " + arguments.tools +
                                     " #}{% for t in tools or [] %}"
                                     "t:{{ t.function.name }};{% endfor %}") +
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}" +
      (arguments.tools.empty() ? "" : calls) +
      ";{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
  std::ofstream(folder / "tokenizer.json")
      << atl::data::sample_llama_json({"\u2581", "a", "\u2581a"}, {"\u2581 a"});
  std::ofstream(folder / "chat_template.jinja") << chat_template;
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token": "<s>", "eos_token": "</s>"})";
  std::shared_ptr<const atl::tokenizer::ChatTemplate> found;
  if (auto read = atl::tokenizer::ChatTemplate::load(folder)) {
    found = std::make_shared<atl::tokenizer::ChatTemplate>(std::move(*read));
  }
  return {.name = "fake",
          .generator =
              std::make_shared<atl::decoding::FakeGenerator>(atl::decoding::FakeGeneratorOptions{
                  .context = arguments.context,
                  .token_time = std::chrono::milliseconds(arguments.token_ms)}),
          .tokenizer =
              std::make_shared<atl::tokenizer::Tokenizer>(atl::tokenizer::Tokenizer::load(folder)),
          .chat_template = found,
          .ends = {atl::decoding::FakeGenerator::kEnd},
          .special_tokens = atl::tokenizer::special_tokens_of(folder),
          .chat_template_text = chat_template};
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  atl::openai::ServiceOptions options{.listen = "127.0.0.1:0"};
  CLI::App app;
  app.add_option("folder", arguments.folder)->required();
  app.add_option("--keys", arguments.keys);
  app.add_option("--tools", arguments.tools);
  app.add_option("--context", arguments.context);
  app.add_option("--token-ms", arguments.token_ms);
  app.add_option("--ping-ms", arguments.ping_ms);
  app.add_option("--certificate", options.certificate_file);
  app.add_option("--private-key", options.private_key_file);
  app.add_option("--running", options.limits.shares.running);
  app.add_option("--waiting", options.limits.shares.waiting);
  CLI11_PARSE(app, argc, argv);
  try {
    options.models = {fake_model(arguments)};
    if (!arguments.keys.empty()) {
      options.keys = atl::openai::read_keys(atl::read_file(arguments.keys), arguments.keys);
    }
    options.limits.ping_interval = std::chrono::milliseconds(arguments.ping_ms);
    const atl::SystemClock clock;
    const atl::openai::Service service(std::move(options), clock);
    fmt::print("{}\n", service.url());
    std::fflush(stdout);
    std::cin.ignore(1'000'000, std::char_traits<char>::eof());
  } catch (const atl::InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
