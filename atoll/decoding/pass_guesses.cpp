#include "atoll/decoding/pass_guesses.h"

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"

namespace atl::decoding {
namespace {

constexpr double kNewest = 0.1;       // What the newest pass counts.
constexpr double kForgetting = 0.01;  // A pass without guesses: what was seen may have been chance.
constexpr double kLeast = 0.005;
constexpr double kMost = 2;
constexpr double kNearly = 0.98;

double moved(double from, double to, double share) { return from + share * (to - from); }

}  // namespace

void GuessCost::note(int64_t num_texts, int64_t num_guesses, double seconds) {
  if (num_texts != num_texts_) plain_s_.reset();
  num_texts_ = num_texts;
  if (num_guesses == 0) {
    plain_s_ = moved(plain_s_.value_or(seconds), seconds, kNewest);
    cost_ = moved(cost_, kUsual, kForgetting);
  } else if (plain_s_ && *plain_s_ > 0) {
    const double cost = (seconds / *plain_s_ - 1) / static_cast<double>(num_guesses);
    cost_ = moved(cost_, std::clamp(cost, kLeast, kMost), kNewest);
  }
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
  std::vector<double> rates;
  for (int64_t count = 0; count <= std::max<int64_t>(most, 0); ++count) {
    rates.push_back(tokens_per_pass(acceptance, cost, count));
  }
  const double enough = kNearly * *std::ranges::max_element(rates);
  const auto found = std::ranges::find_if(rates, [&](double rate) { return rate >= enough; });
  return found - rates.begin();
}

}  // namespace atl::decoding
