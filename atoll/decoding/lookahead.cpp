#include "atoll/decoding/lookahead.h"

#include <algorithm>
#include <array>

#include "atoll/base/check.h"
#include "atoll/decoding/nearly_best.h"

namespace atl::decoding {
namespace {

constexpr double kMemory = 0.97;     // What an older guess counts beside the next one.
constexpr double kForgetting = 0.9;  // What is left of what was seen, when it fades.
constexpr double kSurest = 0.99;     // Nothing is surer.
constexpr size_t kMostGuesses = 256;

}  // namespace

void Acceptance::note(bool is_right) {
  right_ = right_ * kMemory + (is_right ? 1 : 0);
  tried_ = tried_ * kMemory + 1;
}

void Acceptance::fade() {
  right_ = right_ * kForgetting + usual_ * kUsualWeight * (1 - kForgetting);
  tried_ = tried_ * kForgetting + kUsualWeight * (1 - kForgetting);
}

double tokens_per_s(double acceptance, const GuessTimes& times, int64_t num_ahead) {
  ATOLL_CHECK(times.round_trip_s > 0 && times.step_s >= 0 && num_ahead >= 0);
  if (num_ahead == 0) return 1 / times.round_trip_s;
  const double right = std::clamp(acceptance, 0.0, kSurest);
  const auto ahead = static_cast<size_t>(num_ahead);
  // What comes while a guess is made waits for that, half a step on average.
  const double round_trip = times.round_trip_s + times.step_s / 2;
  std::array<double, kMostGuesses> sent{};  // The known token, then the guesses; in seconds.
  double tokens = 0;
  double seconds = 0;
  double rest = 1;  // The probability that all guesses before are right.
  for (size_t i = 1; i <= kMostGuesses; ++i) {
    // The guess i is wrong, which is known as soon as what follows the one before it: as many
    // tokens are known then. The last one counts for all behind it.
    const double wrong = i == kMostGuesses ? rest : rest * (1 - right);
    tokens += wrong * static_cast<double>(i);
    seconds += wrong * (sent[i - 1] + round_trip);
    rest *= right;
    if (i == kMostGuesses) break;
    // So many are under way until what follows an earlier one is known.
    const double free = i > ahead ? sent[i - ahead - 1] + round_trip : 0;
    sent[i] = std::max(sent[i - 1], free) + times.step_s;
  }
  return tokens / seconds;
}

int64_t choose_num_ahead(double acceptance, const GuessTimes& times, int64_t most) {
  return fewest_nearly_best(most,
                            [&](int64_t ahead) { return tokens_per_s(acceptance, times, ahead); });
}

}  // namespace atl::decoding
