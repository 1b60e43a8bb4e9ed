#include "atoll/decoding/pass_guesses.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/decoding/nearly_best.h"

namespace atl::decoding {
namespace {

constexpr double kNewest = 0.1;       // What the newest pass counts,
constexpr double kNewestPlain = 0.3;  // of which there may be few.
constexpr int64_t kLongAgo = 64;
constexpr double kForgetting = 0.01;  // A pass without guesses: what was seen may have been chance.
constexpr double kLeast = 0.005;
constexpr double kMost = 2;

double moved(double from, double to, double share) { return from + share * (to - from); }

}  // namespace

void GuessCost::note(int64_t num_texts, int64_t num_guesses, double seconds) {
  const auto [place, is_new] = plain_.try_emplace(num_texts);
  Plain& plain = place->second;
  if (num_guesses == 0) {
    plain = {.pass_s = is_new ? seconds : moved(plain.pass_s, seconds, kNewestPlain)};
    cost_ = moved(cost_, kUsual, kForgetting);
  } else if (is_new || plain.pass_s <= 0) {
    plain_.erase(place);
  } else {
    const double cost = (seconds / plain.pass_s - 1) / static_cast<double>(num_guesses);
    cost_ = moved(cost_, std::clamp(cost, kLeast, kMost), kNewest);
    plain.num_since += 1;
  }
}

bool GuessCost::wants_plain_pass(int64_t num_texts) const {
  const auto found = plain_.find(num_texts);
  return found == plain_.end() || found->second.num_since >= kLongAgo;
}

double tokens_per_pass(double acceptance, double cost, int64_t num_guesses) {
  ATOLL_CHECK(cost >= 0 && num_guesses >= 0);
  double tokens = 1;
  double right = 1;  // The probability that all guesses so far are.
  for (int64_t i = 0; i < num_guesses; ++i) {
    right *= acceptance;
    tokens += right;
  }
  return tokens / (1 + cost * static_cast<double>(num_guesses));
}

int64_t choose_num_guesses(double acceptance, double cost, int64_t most) {
  return fewest_nearly_best(
      most, [&](int64_t count) { return tokens_per_pass(acceptance, cost, count); });
}

}  // namespace atl::decoding
