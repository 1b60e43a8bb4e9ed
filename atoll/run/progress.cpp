#include "atoll/run/progress.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/progress.h"
#include "atoll/run/json_number.h"

namespace atl::run {

using nlohmann::json;

namespace {

json json_of(const SecondsSpent& seconds) {
  return {{"computing", seconds.computing},
          {"handling", seconds.handling},
          {"waiting", seconds.waiting},
          {"validation", seconds.validation},
          {"checkpoints", seconds.checkpoints}};
}

SecondsSpent seconds_from_json(const json& in) {
  return {.computing = in.at("computing"),
          .handling = in.at("handling"),
          .waiting = in.at("waiting"),
          .validation = in.at("validation"),
          .checkpoints = in.at("checkpoints")};
}

}  // namespace

SecondsSpent& SecondsSpent::operator+=(const SecondsSpent& other) {
  computing += other.computing;
  handling += other.handling;
  waiting += other.waiting;
  validation += other.validation;
  checkpoints += other.checkpoints;
  return *this;
}

double SecondsSpent::waiting_share() const {
  return training() > 0 ? (handling + waiting) / training() : 0;
}

std::string to_json(const Progress& progress) {
  json out = {{"step", progress.step},
              {"steps", progress.steps},
              {"tokens", progress.tokens},
              {"loss", progress.loss},
              {"lr", progress.lr},
              {"grad_norm", progress.grad_norm},
              {"tokens_per_s", progress.tokens_per_s},
              {"seconds_left", progress.seconds_left},
              {"stall_share", progress.stall_share},
              {"bytes_sent", progress.bytes_sent},
              {"bytes_received", progress.bytes_received},
              {"member", progress.member},
              {"trained", progress.trained},
              {"unit", progress.unit},
              {"began_at", progress.began_at},
              {"seconds", json_of(progress.seconds)}};
  if (progress.val_loss) out["val_loss"] = *progress.val_loss;
  if (progress.abstained_rounds > 0) out["abstained_rounds"] = progress.abstained_rounds;
  return out.dump();
}

Progress progress_from_json(std::string_view text) {
  const json in = json::parse(text);
  Progress out{.step = in.at("step"),
               .steps = in.at("steps"),
               .tokens = in.at("tokens"),
               .loss = number(in.at("loss")),
               .lr = in.at("lr"),
               .grad_norm = number(in.at("grad_norm")),
               .tokens_per_s = in.at("tokens_per_s"),
               .seconds_left = in.at("seconds_left"),
               .stall_share = in.at("stall_share"),
               .abstained_rounds = in.value("abstained_rounds", int64_t{0}),
               .bytes_sent = in.at("bytes_sent"),
               .bytes_received = in.at("bytes_received"),
               .member = in.at("member"),
               .trained = in.at("trained"),
               .unit = in.at("unit"),
               .began_at = in.at("began_at"),
               .seconds = seconds_from_json(in.at("seconds"))};
  if (in.contains("val_loss")) out.val_loss = number(in.at("val_loss"));
  return out;
}

std::string to_json(const Summary& s) {
  return json{{"run", s.run},
              {"steps", s.steps},
              {"tokens", s.tokens},
              {"train_loss", s.train_loss},
              {"val_loss_start", s.val_loss_start},
              {"val_loss_island", s.val_loss_island},
              {"val_loss", s.val_loss},
              {"tokens_per_s", s.tokens_per_s},
              {"digest", s.digest},
              {"bytes_sent", s.bytes_sent},
              {"bytes_received", s.bytes_received},
              {"stall_share", s.stall_share},
              {"blocked_share", s.blocked_share},
              {"checkpoint_stall_ms", s.checkpoint_stall_ms},
              {"num_parameters", s.num_parameters},
              {"abstained_rounds", s.abstained_rounds},
              {"method", s.method},
              {"codec", s.codec},
              {"fragment_sync_delay", s.fragment_sync_delay},
              {"steps_now", s.steps_now},
              {"stopped", s.stopped},
              {"seconds", json_of(s.seconds)},
              {"away_seconds", s.away_seconds}}
      .dump();
}

Summary summary_from_json(std::string_view text) {
  const json in = json::parse(text);
  // Points that an older version finished have no seconds.
  const bool has_seconds = in.contains("seconds");
  return {.run = in.at("run"),
          .steps = in.at("steps"),
          .tokens = in.at("tokens"),
          .train_loss = number(in.at("train_loss")),
          .val_loss_start = number(in.at("val_loss_start")),
          .val_loss_island = number(in.at("val_loss_island")),
          .val_loss = number(in.at("val_loss")),
          .tokens_per_s = in.at("tokens_per_s"),
          .digest = in.at("digest"),
          .bytes_sent = in.at("bytes_sent"),
          .bytes_received = in.at("bytes_received"),
          .stall_share = in.at("stall_share"),
          .blocked_share = in.at("blocked_share"),
          .checkpoint_stall_ms = in.at("checkpoint_stall_ms"),
          .num_parameters = in.at("num_parameters"),
          .abstained_rounds = in.at("abstained_rounds"),
          .method = in.at("method"),
          .codec = in.at("codec"),
          .fragment_sync_delay = in.at("fragment_sync_delay"),
          .steps_now = in.at("steps_now"),
          .stopped = in.at("stopped"),
          .seconds = has_seconds ? seconds_from_json(in["seconds"]) : SecondsSpent(),
          .away_seconds = in.value("away_seconds", 0.0)};
}

std::string progress_line(const Progress& p) {
  std::string line = fmt::format("step {}/{}  loss {:.3f}", p.step, p.steps, p.loss);
  if (p.val_loss) line += fmt::format("  val {:.3f}", *p.val_loss);
  line += fmt::format("  {} tok/s", format_count(p.tokens_per_s));
  if (p.stall_share > 0) line += fmt::format("  wait {:.0f} %", 100 * p.stall_share);
  if (p.abstained_rounds > 0) line += fmt::format("  {} rounds abstained", p.abstained_rounds);
  return line + "  left " + format_duration(p.seconds_left);
}

}  // namespace atl::run
