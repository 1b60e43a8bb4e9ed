#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/progress.h"
#include "atoll/cli/fit_json.h"
#include "atoll/cli/scaling_command.h"
#include "atoll/cli/scaling_table_options.h"
#include "atoll/cli/whole_number.h"
#include "atoll/laws/prediction.h"
#include "atoll/weights/config.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::Interval;
using laws::Prediction;

constexpr const char* kFooter = R"(
Without --fit the laws are those of Scaling Laws for DiLoCo (C4, 20 tokens a parameter, H = 30):
the loss from its Table 4, settings from its Tables 8 to 10 and Figure 7. They count parameters as
vocab * hidden + layers * (4 hidden^2 + 2 hidden ff); --shape counts so, and shows Atoll's number.

Ranges: of the loss, where a new run falls by the law alone (--confidence); that, and what the
forms with a floor say, wider the further it is extrapolated, as the law missed the largest size
without it: how many runs fall into that one nobody can say. Of published settings, what the other
law says and half a step of the sweeps; of fitted settings, where a new optimum falls.

Examples:
  atoll scaling predict --params 1.3e9 --replicas 2
  atoll scaling predict --shape 24,2048,8192,32000 --replicas 0 --json
  atoll scaling predict --params 2e6 --replicas 4 --fit runs.csv)";

struct PredictArguments {
  laws::Question question;
  std::vector<double> shape;  // Layers, hidden, ff, vocab.
  std::string law = "auto";
  std::string file;
  TableOptions table;
  bool json = false;
};

/// Parameters that Atoll trains in a Llama of that shape, norms and three MLP matrices included.
int64_t atoll_params(const std::vector<double>& shape) {
  weights::ModelConfig config;
  config.num_layers = static_cast<int64_t>(shape[0]);
  config.hidden_size = static_cast<int64_t>(shape[1]);
  config.intermediate_size = static_cast<int64_t>(shape[2]);
  config.vocab_size = static_cast<int64_t>(shape[3]);
  config.num_heads = config.num_kv_heads = 1;  // Any number gives the same matrices.
  return weights::num_parameters(config);
}

laws::LawChoice choice_of(const std::string& law) {
  if (law == "joint") return laws::LawChoice::kJoint;
  return law == "independent" ? laws::LawChoice::kIndependent : laws::LawChoice::kAuto;
}

Json value_json(const std::optional<Interval>& interval) {
  return interval ? Json(interval->value) : Json();
}

Json range_json(const std::optional<Interval>& interval) {
  return interval ? Json{interval->low, interval->high} : Json();
}

const char* params_unit(const PredictArguments& arguments) {
  const bool is_own = !arguments.file.empty() && arguments.table.count != "papers";
  return is_own ? kColumnCount : kPapersCount;
}

void print_json(const PredictArguments& arguments, const Prediction& prediction,
                const std::optional<laws::Comparable>& own) {
  const laws::Question& question = arguments.question;
  const std::optional<Interval> loss = prediction.loss;
  Json json = {{"loss", value_json(loss)},
               {"batch_tokens", value_json(prediction.batch_tokens)},
               {"inner_lr", value_json(prediction.inner_lr)},
               {"outer_lr", value_json(prediction.outer_lr)},
               {"extrapolation", prediction.extrapolation},
               {"replicas_extrapolation", prediction.replicas_extrapolation},
               {"loss_range", range_json(loss)},
               {"batch_tokens_range", range_json(prediction.batch_tokens)},
               {"inner_lr_range", range_json(prediction.inner_lr)},
               {"outer_lr_range", range_json(prediction.outer_lr)},
               {"confidence", prediction.is_widened() ? Json() : Json(question.confidence)},
               {"law_range", range_json(prediction.law_loss)},
               {"law_confidence", question.confidence},
               {"params", question.params},
               {"replicas", static_cast<int64_t>(question.replicas)},
               {"law", prediction.law},
               {"fit", arguments.file.empty() ? "published" : arguments.file},
               {"fitted_params", {prediction.smallest, prediction.largest}},
               {"units",
                {{"loss", "nats per token"},
                 {"batch_tokens", "tokens of a step, of all replicas"},
                 {"inner_lr", "peak"},
                 {"params", params_unit(arguments)}}},
               {"warnings", prediction.warnings},
               {"missing", Json::array()}};
  for (const laws::Refusal& missing : prediction.missing) {
    json["missing"].push_back({{"what", missing.what}, {"reason", missing.reason}});
  }
  if (!arguments.shape.empty()) json["atoll_params"] = atoll_params(arguments.shape);
  if (own) add_comparable_json(json, *own);
  fmt::print("{}\n", json.dump());
}

void print_value(const char* name, const std::optional<Interval>& interval, const char* unit) {
  if (!interval) return;
  fmt::print("{:<20} {:<10.4g} [{:.4g}, {:.4g}] {}\n", name, interval->value, interval->low,
             interval->high, unit);
}

void print_text(const PredictArguments& arguments, const Prediction& prediction) {
  const laws::Question& question = arguments.question;
  fmt::print("{} parameters, {}; {} law of {}\n", format_count(question.params),
             laws::replicas_name(question.replicas), prediction.law,
             arguments.file.empty() ? "Scaling Laws for DiLoCo" : arguments.file);
  if (!arguments.shape.empty()) {
    fmt::print("as the papers count; Atoll counts {}: norms, and three matrices in an MLP\n",
               format_count(static_cast<double>(atoll_params(arguments.shape))));
  }
  print_value("loss", prediction.loss, "nats per token");
  if (prediction.is_widened()) {
    fmt::print("{:<31} [{:.4g}, {:.4g}] {:g} % of runs, by the law alone\n", "",
               prediction.law_loss.low, prediction.law_loss.high, 100 * question.confidence);
  }
  print_value("batch", prediction.batch_tokens, "tokens of a step, of all replicas");
  print_value("inner learning rate", prediction.inner_lr, "peak");
  print_value("outer learning rate", prediction.outer_lr, "");
}

void predict(PredictArguments& arguments) {
  laws::Question& question = arguments.question;
  if (!arguments.shape.empty()) {
    question.params = laws::papers_params(arguments.shape[0], arguments.shape[1],
                                          arguments.shape[2], arguments.shape[3]);
  } else if (question.params == 0) {
    throw UsageError("--params or --shape is needed");
  }
  question.law = choice_of(arguments.law);
  std::optional<laws::Comparable> own;
  if (!arguments.file.empty()) {
    own = compared_runs(arguments.file, arguments.table.load(arguments.file));
  }
  const Prediction prediction =
      own ? laws::Predictor(*own).predict(question) : laws::predict_published(question);
  for (const laws::Refusal& missing : prediction.missing) {
    fmt::print(stderr, "atoll: not predicted: {}: {}\n", missing.what, missing.reason);
  }
  for (const std::string& one : prediction.warnings) {
    fmt::print(stderr, "atoll: warning: {}\n", one);
  }
  const std::string warning = laws::extrapolation_warning(prediction, question);
  if (!warning.empty()) fmt::print(stderr, "atoll: an extrapolation: {}\n", warning);
  if (arguments.json) {
    print_json(arguments, prediction, own);
  } else {
    print_text(arguments, prediction);
  }
}

}  // namespace

void add_scaling_predict(CLI::App& scaling) {
  CLI::App* command = scaling.add_subcommand(
      "predict", "Predict loss, batch and learning rates of a size and number of replicas");
  const auto arguments = std::make_shared<PredictArguments>();
  CLI::Option* params =
      command->add_option("--params", arguments->question.params, "Parameters of the model")
          ->check(real_number(1, 1e18));
  command
      ->add_option("--shape", arguments->shape,
                   "Instead: LAYERS,HIDDEN,FF,VOCAB, counted as the papers do")
      ->delimiter(',')
      ->expected(4)
      ->check(whole_number<int64_t>(1, 1'000'000))
      ->excludes(params);
  command
      ->add_option("--replicas", arguments->question.replicas,
                   "Islands that train; 0: data-parallel")
      ->required()
      ->check(whole_number<int64_t>(0, 1'000'000));
  CLI::Option* file =
      command
          ->add_option("--fit", arguments->file,
                       "One's own runs: a table as `fit` reads it, or what `fit --json` printed")
          ->check(CLI::ExistingFile);
  add_table_options(*command, arguments->table, file);
  command
      ->add_option("--law", arguments->law,
                   "joint (of all replicas), independent (of this number alone), or auto: joint "
                   "where there is one")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "joint", "independent"}));
  command->add_option("--confidence", arguments->question.confidence, "Of the law's own range")
      ->capture_default_str()
      ->check(real_number(0.5, 0.999));
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(kFooter);
  command->callback([arguments] {
    const bool counts_differ = !arguments->shape.empty() && !arguments->file.empty();
    if (counts_differ && arguments->table.count != "papers") {
      throw UsageError(
          "--shape counts as the papers do, and --fit's table by its column: give --params as it "
          "counts, or --count papers");
    }
    predict(*arguments);
  });
}

}  // namespace atl::cli
