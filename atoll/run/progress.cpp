#include "atoll/run/progress.h"

#include <fmt/format.h>

#include "atoll/base/fields_json.h"
#include "atoll/base/progress.h"

namespace atl::run {

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

std::string to_json(const Progress& progress) { return json_of(progress).dump(); }
std::string to_json(const Summary& summary) { return json_of(summary).dump(); }

Summary summary_from_json(std::string_view text) {
  return struct_in<Summary>(text, "this is no summary of a run");
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
