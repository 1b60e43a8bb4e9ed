#include "atoll/cli_torch/sampling_arguments.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli/whole_number.h"
#include "atoll/text/json_text.h"

namespace atl::cli {
namespace {

/// The ends that a generation_config.json names; none where there is no such file.
std::vector<int64_t> named_ends(const std::filesystem::path& file) {
  std::vector<int64_t> ids;
  if (!std::filesystem::exists(file)) return ids;
  const std::string where = "'" + file.string() + "'";
  const nlohmann::json json = text::parse_json(read_file(file), where);
  if (!json.is_object() || !json.contains("eos_token_id") || json["eos_token_id"].is_null()) {
    return ids;
  }
  const nlohmann::json& entry = json["eos_token_id"];
  const nlohmann::json list = entry.is_array() ? entry : nlohmann::json::array({entry});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer()) throw InputError(where + ": \"eos_token_id\" is not a token id");
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace

std::vector<int64_t> end_ids(const LoadedModel& loaded) {
  // As in transformers: what generation_config.json says goes before config.json.
  std::vector<int64_t> ids = named_ends(loaded.folder / "generation_config.json");
  if (ids.empty()) ids = loaded.ids.ends;
  if (!ids.empty()) return ids;
  try {
    ids.push_back(loaded.tokenizer.end_of_text());
  } catch (const InputError&) {  // It names none.
  }
  return ids;
}

std::vector<int64_t> end_ids(const LoadedModel& loaded, const tokenizer::ChatTemplate& chat) {
  std::vector<int64_t> ids = end_ids(loaded);
  const std::string end = chat.end_of_turn();
  if (const auto id = end.empty() ? std::nullopt : loaded.tokenizer.id_of(end)) ids.push_back(*id);
  return ids;
}

serve::GenerateOptions sampling_options(const SamplingArguments& arguments,
                                        const LoadedModel& loaded) {
  serve::GenerateOptions options = arguments.options;
  if (arguments.greedy) options.sampler.temperature = 0;
  decoding::check(options.sampler);
  options.ends = end_ids(loaded);
  return options;
}

void add_sampling_arguments(CLI::App& command, SamplingArguments& arguments) {
  decoding::SamplerOptions& sampler = arguments.options.sampler;
  command.add_option("--max-tokens", arguments.options.max_tokens, "tokens to add (default: 128)")
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  auto* greedy = command.add_flag("--greedy", arguments.greedy, "always the likeliest token");
  command
      .add_option("--temperature", sampler.temperature,
                  "divides the logits; 0 is --greedy (default: 1)")
      ->check(real_number(0, 100))
      ->excludes(greedy);
  command.add_option("--top-k", sampler.top_k, "only the k likeliest tokens; 0: all (default: 0)")
      ->check(whole_number<int64_t>(0))
      ->excludes(greedy);
  command
      .add_option("--top-p", sampler.top_p,
                  "then only the likeliest tokens that reach this probability (default: 1)")
      ->check(real_number(0, 1))
      ->excludes(greedy);
  command
      .add_option("--min-p", sampler.min_p,
                  "then only tokens this many times as likely as the likeliest (default: 0)")
      ->check(real_number(0, 1))
      ->excludes(greedy);
  command
      .add_option("--repetition-penalty", sampler.repetition_penalty,
                  "above 1: tokens that are in the text get less likely (default: 1)")
      ->check(real_number(1e-6, 100));
  command
      .add_option("--stop", arguments.stops,
                  "the answer ends before this text; may be given several times")
      ->allow_extra_args(false);
  command.add_option("--seed", sampler.seed, "of the random draws (default: 0)")
      ->check(whole_number<uint64_t>(0))
      ->excludes(greedy);
  add_guesses_argument(command, arguments.options.max_guesses);
}

void add_guesses_argument(CLI::App& command, int64_t& max_guesses) {
  command
      .add_option(
          "--max-guesses", max_guesses,
          "tokens that are guessed from the text itself and verified in the pass that makes "
          "the next one, at most, all texts together; they change nothing but the time "
          "(0: none, as on devices)")
      ->check(whole_number<int64_t>(0, 256))
      ->capture_default_str();
}

}  // namespace atl::cli
