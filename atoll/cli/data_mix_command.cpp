#include "atoll/cli/data_mix_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/base/progress.h"
#include "atoll/cli/store_report.h"
#include "atoll/data/blend.h"
#include "atoll/data/mixture.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string out;
  std::vector<std::string> stores;
  bool overwrite = false;
  bool json = false;
};

/// "web=0.7"; a name may hold '=' itself.
std::pair<std::filesystem::path, double> parse_weight(const std::string& text) {
  const size_t sign = text.rfind('=');
  if (sign != std::string::npos && sign > 0) {
    const auto weight = number_in<double>(std::string_view(text).substr(sign + 1));
    if (weight) return {text.substr(0, sign), *weight};
  }
  throw UsageError(fmt::format("'{}' is no STORE=WEIGHT, such as web=0.7", text));
}

void mix(const Arguments& arguments) {
  std::vector<std::pair<std::filesystem::path, double>> stores;
  for (const std::string& text : arguments.stores) stores.push_back(parse_weight(text));
  report_mixture(data::mix_stores(stores, arguments.out, arguments.overwrite), arguments.json);
}

}  // namespace

void report_mixture(const data::Mixture& mixture, bool json) {
  const std::vector<double> shares = data::shares_of(mixture.weights());
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;
  Json list = Json::array();
  for (size_t i = 0; i < shares.size(); ++i) {
    const data::TokenStore& store = mixture.stores()[i];
    for (const data::Split which : data::kSplits) {
      documents += store.info().split(which).num_documents;
      tokens += store.info().split(which).num_tokens;
      bytes += store.info().split(which).text_bytes;
    }
    list.push_back({{"store", store.folder().string()},
                    {"weight", mixture.weights()[i]},
                    {"share", shares[i]},
                    {"train_tokens", store.num_tokens(data::Split::kTrain)},
                    {"validation_tokens", store.num_tokens(data::Split::kValidation)},
                    {"digest", store.info().digest()}});
  }
  if (json) {
    fmt::print("{}\n", one_line({{"documents", documents},
                                 {"tokens", tokens},
                                 {"bytes", bytes},
                                 {"vocab_size", mixture.vocab_size()},
                                 {"dtype", nullptr},  // Each store's own.
                                 {"stores", std::move(list)},
                                 {"digest", mixture.digest()}}));
    return;
  }
  fmt::print("{}: {} stores by weight\n", mixture.folder().string(), shares.size());
  for (const Json& store : list) {
    fmt::print("  {:5.1f} % of the rows from {}, which has {} tokens to train on\n",
               100 * store["share"].get<double>(), store["store"].get<std::string>(),
               format_count(store["train_tokens"].get<double>()));
  }
  fmt::print("  digest: {}\n", mixture.digest());
}

void add_data_mix(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "mix", "Name token stores that are read together, each by its weight; nothing is copied");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("out", arguments->out, "The folder to make")->required();
  command->add_option("stores", arguments->stores, "STORE=WEIGHT, two or more")->required();
  command->add_flag("--overwrite", arguments->overwrite, "Replace the mixture at OUT");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "The mixture stands where a store does: atoll train --data mix, atoll data batch mix.\n"
      "Example: atoll data mix mix web=0.7 code=0.3");
  command->callback([arguments] { mix(*arguments); });
}

}  // namespace atl::cli
