#include "atoll/run/unit_source.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace atl::run {

UnitSource::UnitSource(UnitOptions options, const Clock& clock, TimeSpent& time)
    : options_(std::move(options)), clock_(clock), time_(time) {}

Result<int64_t> UnitSource::take(int64_t step) {
  Diary* const diary = options_.diary;
  const auto before = diary != nullptr ? diary->step(step) : std::nullopt;
  if (before) {  // It was trained on already, perhaps as another member.
    if (before->member == options_.rank) num_trained_ = before->trained;
    last_ = before->unit;
  } else {
    const int64_t own = (step - 1) * options_.num_members + options_.rank;
    const Time begin = clock_.now();
    auto unit = options_.next ? options_.next() : Result<int64_t>(own);
    time_.add(TimeSpent::On::kRows, seconds(clock_.now() - begin));
    if (!unit) return unit;
    // Of what was leased before, nothing comes again.
    const int64_t known = diary != nullptr ? diary->trained_at(INT64_MAX) : 0;
    num_trained_ = std::max(num_trained_, known) + 1;
    last_ = *unit;
  }
  num_now_ += 1;
  if (diary != nullptr) {
    diary->note_step(step, {.unit = last_, .trained = num_trained_, .member = options_.rank});
  }
  return last_;
}

}  // namespace atl::run
