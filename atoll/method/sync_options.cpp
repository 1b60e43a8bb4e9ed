#include "atoll/method/sync_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/method/method.h"

namespace atl::method {
namespace {

/// All are sent after the last step, and a coordinator holds 256 rounds.
constexpr int64_t kMaxFragments = 128;

/// The names of the methods that use a field; of none: it is for all of them.
std::vector<std::string_view> users(std::string_view field) {
  return methods_that([&](const Method& method) { return method.uses(field); });
}

/// "0.7 (sparse_loco: 1)": the usual value of a field of Method, and of those who have another.
template <typename T>
std::string own_values(T Method::* field) {
  std::vector<std::string> others;
  for (const Method& method : methods()) {
    if (method.*field == Method{}.*field) continue;
    others.push_back(fmt::format("{}: {}", method.name, method.*field));
  }
  return fmt::format("{} ({})", Method{}.*field, fmt::join(others, ", "));
}

std::string method_help() {
  std::string help = "default: single for one island, diloco for more";
  for (const Method& method : methods()) help += fmt::format("; {}: {}", method.name, method.what);
  return help;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names = {"default"};
  for (const Method& method : methods()) names.emplace_back(method.name);
  return names;
}

/// The field's help, behind the methods that it is for.
std::string help_of(std::string_view field, std::string_view help) {
  return fmt::format("{}: {}", fmt::join(users(field), ", "), help);
}

void visit_outer_gradient(SyncOptions& options, SettingList& list) {
  list.add("outer_lr", options.outer_lr,
           help_of("outer_lr",
                   "outer learning rate; -1 = the method's own, " + own_values(&Method::outer_lr)),
           {.min = -1, .max = 10});
  list.add("outer_momentum", options.outer_momentum,
           help_of("outer_momentum", "outer momentum; outer Adam: beta 1"),
           {.min = 0, .max = 0.9999});
  list.add("outer_optimizer", options.outer_optimizer,
           help_of("outer_optimizer", "what makes a step of the outer gradient"),
           {"nesterov", "heavy_ball", "sgd", "adam"});
  list.add("outer_beta2", options.outer_beta2,
           help_of("outer_beta2", "outer Adam: decay of the mean square"),
           {.min = 0, .max = 0.99999});
  list.add("outer_eps", options.outer_eps,
           help_of("outer_eps", "outer Adam: added to the root; small ones are unstable"),
           {.min = 0, .max = 1});
  list.add(
      "outer_mean", options.outer_mean,
      help_of("outer_mean",
              "how outer gradients are averaged; radial: lengths and directions apart, which keeps "
              "the length"),
      {"mean", "radial"});
  list.add("sign_pruning", options.sign_pruning,
           help_of("sign_pruning",
                   "share of each neuron's outer gradient that is not sent, the smallest values"),
           {.min = 0, .max = 0.99});
  list.add(
      "outer_dropout", options.outer_dropout,
      help_of("outer_dropout",
              "for experiments: share of (round, island) whose outer gradient is left out; the "
              "island goes on from its own parameters"),
      {.min = 0, .max = 0.99});
}

void visit_fragments(SyncOptions& options, SettingList& list) {
  list.add("num_fragments", options.num_fragments,
           help_of("num_fragments", "fragments that are synchronised in turn (P); 1 = all at once"),
           {.min = 1, .max = kMaxFragments});
  list.add(
      "fragment_pattern", options.fragment_pattern,
      help_of("fragment_pattern",
              "strided or sequential layers (embedding and head apart), or balanced: equal sizes, "
              "cut anywhere"),
      {"strided", "sequential", "balanced"});
  list.add(
      "fragment_sync_delay", options.fragment_sync_delay,
      help_of("fragment_sync_delay",
              "inner steps while an exchange travels (tau), below sync_every; cocktail_sgd has 1, "
              "or 0 to wait"),
      {.min = 0});
  list.add(
      "fragment_update_alpha", options.fragment_update_alpha,
      help_of("fragment_update_alpha",
              "share of the local value that is kept at a sync (alpha); 0 = take the global one, "
              "1 = islands keep their own, for comparisons: the exchange goes on"),
      {.min = 0, .max = 1});
}

}  // namespace

void SyncOptions::visit(SettingList& list) {
  list.section("sync", "when and how the islands agree");
  list.add("method", method, method_help(), method_names());
  list.add("sync_every", sync_every,
           help_of("sync_every", "inner steps between two syncs of a parameter (H)"), {.min = 1});
  visit_outer_gradient(*this, list);
  visit_fragments(*this, list);
  list.add("error_feedback_decay", error_feedback_decay,
           help_of("error_feedback_decay",
                   "share of what was not sent that is kept for the next period (beta)"),
           {.min = 0, .max = 1});
  list.add("momentum_decay", momentum_decay,
           help_of("momentum_decay", "share of the momentum that is kept at a step (beta)"),
           {.min = 0, .max = 0.99999});
  list.add("codec", codec,
           "how numbers travel: fp32 (exact), bf16, fp16, int8, e3m0, int4, or, for methods with "
           "error feedback, such as rolling(0.1)+topk(0.2)+int4; default: the method's own, " +
               own_values(&Method::codec) +
               "; auto: the least compression that hides behind training, by measurement, with "
               "fragment_sync_delay");
  list.add(
      "exchange_share", exchange_share,
      help_of("exchange_share",
              "of one core, at most, for the exchange while this island trains (a rest lasts 5 s "
              "at most, since the others wait); 1: as it needs"),
      {.min = 0.01, .max = 1});
  list.local();
  list.add("layer_metrics", layer_metrics,
           "write norms of the outer gradients and their cosine to the other islands', layer by "
           "layer, into rounds.jsonl");
  list.local();
  list.add("outer_device", outer_device,
           help_of("outer_device",
                   "where the global copy and the outer optimiser's buffers are: cpu, or train, on "
                   "train.device; the result is the same to the bit"),
           {"cpu", "train"});
  list.local();
}

namespace {

std::unique_ptr<codec::Codec> codec_of(const SyncOptions& options) {
  try {
    return codec::make_codec(codec_name(options));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("sync.codec: {}", error.what()));
  }
}

void check_codec(const SyncOptions& options) {
  const Method& method = method_of(options);
  if (options.codec == "auto") {
    if (method.left_out != LeftOut::kMomentum) return;
    throw UsageError(fmt::format(
        "sync.codec = 'auto' cannot be used with {}: what its codec leaves out is its momentum; "
        "choose default, or a codec by name",
        options.method));
  }
  const auto codec = codec_of(options);
  if (codec->is_dense() || method.left_out != LeftOut::kLost) return;
  const auto others =
      methods_that([](const Method& other) { return other.left_out != LeftOut::kLost; });
  throw UsageError(fmt::format(
      "sync.codec = '{}' leaves values out, and sync.method = '{}' would lose them: it has no "
      "error feedback; choose a codec that keeps all (int8, e3m0, ...), or one of {}",
      options.codec, options.method, fmt::join(others, ", ")));
}

/// Throws unless the method uses the field.
void require_user(const SyncOptions& options, std::string_view field) {
  const auto wanted = users(field);
  if (wanted.empty() || options.method == "default" || method_of(options).uses(field)) return;
  throw UsageError(
      fmt::format("sync.{} has no effect with sync.method = '{}'; it is for {}; leave it out, or "
                  "choose such a method",
                  field, options.method, fmt::join(wanted, ", ")));
}

void check_outer_gradient(const SyncOptions& options) {
  const std::string codec = codec_name(options);
  if (options.outer_mean == "radial" && codec != "fp32" && codec != "bf16") {
    throw UsageError(fmt::format(
        "sync.outer_mean = 'radial' sends lengths beside directions and cannot use sync.codec = "
        "'{}'; choose fp32 or bf16",
        codec));
  }
  if (options.outer_lr < 0 && options.outer_lr != -1) {
    throw UsageError(
        fmt::format("sync.outer_lr = {} is negative; choose -1, the method's own, or at least 0",
                    options.outer_lr));
  }
  if (options.outer_mean == "radial" && options.layer_metrics) {
    throw UsageError(
        "sync.layer_metrics cannot be used with sync.outer_mean = 'radial': what travels is "
        "directions without their lengths, whose norms say nothing; leave one of the two out");
  }
  if (options.keeps_outer_near() && (options.outer_mean == "radial" || options.sign_pruning > 0)) {
    throw UsageError(
        "sync.outer_device = 'train' cannot be used with sync.outer_mean = 'radial' or "
        "sync.sign_pruning, which work on the host; choose cpu, or leave those out");
  }
  // Others that the method does not use may stand in a file that several runs share. These three
  // are meant for one experiment.
  if (options.outer_mean != "mean") require_user(options, "outer_mean");
  if (options.sign_pruning != 0) require_user(options, "sign_pruning");
  if (options.outer_dropout != 0) require_user(options, "outer_dropout");
}

}  // namespace

void check(const SyncOptions& options) {
  check_codec(options);
  check_outer_gradient(options);
  method_of(options).check(options);
}

void check_used(const SyncOptions& options, std::string_view field) {
  if (method_of(options).is_for_one && field != "method") {
    throw UsageError(fmt::format(
        "sync.{} has no effect on one island that trains alone; leave it out, or add --islands 2, "
        "or choose a sync.method",
        field));
  }
  require_user(options, field);
  const auto refuse = [&](const char* other, const std::string& value, const char* why) {
    throw UsageError(
        fmt::format("sync.{} has no effect with sync.{} = '{}'; {}", field, other, value, why));
  };
  const std::string& optimizer = options.outer_optimizer;
  const bool is_adams = field == "outer_beta2" || field == "outer_eps";
  if (is_adams && optimizer != "adam") refuse("outer_optimizer", optimizer, "it is for adam");
  if (field == "outer_momentum" && optimizer == "sgd") {
    refuse("outer_optimizer", optimizer, "it is for nesterov, heavy_ball and adam");
  }
  const bool is_auto = options.codec == "auto";
  if (field == "fragment_sync_delay" && is_auto) refuse("codec", options.codec, "auto chooses it");
  const bool waits = method_of(options).has_delay() && options.fragment_sync_delay == 0;
  if (field == "exchange_share" && waits && !is_auto) {
    refuse("fragment_sync_delay", "0", "training waits for each exchange");
  }
}

}  // namespace atl::method
