#include "atoll/run/metrics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/run/events.h"

namespace atl::run {
namespace {

std::filesystem::path cut_after(const std::filesystem::path& path, int64_t resumed_step) {
  if (!std::filesystem::exists(path)) return path;
  std::istringstream old(read_file(path));
  std::string kept;
  for (std::string line; std::getline(old, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A line torn by a crash is dropped with what follows it.
    if (record.is_discarded() || !record.contains("step") || record["step"] > resumed_step) break;
    kept += line + "\n";
  }
  write_file_atomically(path, kept);
  return path;
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& folder, std::string name, int64_t resumed_step,
                     EventSink events)
    : name_(std::move(name)),
      events_(std::move(events)),
      out_(cut_after(folder / name_, resumed_step), std::ios::app) {
  if (!out_) throw InputError(fmt::format("cannot write '{}'", (folder / name_).string()));
}

void JsonLines::add(const std::string& line) {
  out_ << line << "\n" << std::flush;
  if (out_ || warned_) return;
  warned_ = true;
  events_(RecordsNotKept{name_});
}

Metrics::Metrics(const std::filesystem::path& folder, int64_t resumed_step, const EventSink& events)
    : steps_(folder, "metrics.jsonl", resumed_step, events),
      rounds_(folder, "rounds.jsonl", resumed_step, events),
      scalars_(folder) {}

void Metrics::add(const Progress& progress) {
  auto record = json_of(progress);
  record.erase("seconds_left");
  record["time"] = wall_time();
  steps_.add(record.dump());

  std::map<std::string, double> scalars = {{"train/loss", progress.loss},
                                           {"train/lr", progress.lr},
                                           {"train/grad_norm", progress.grad_norm},
                                           {"speed/tokens_per_s", progress.tokens_per_s},
                                           {"speed/stall_share", progress.stall_share}};
  if (progress.val_loss) scalars["validation/loss"] = *progress.val_loss;
  scalars_.add(progress.step, scalars);
}

}  // namespace atl::run
