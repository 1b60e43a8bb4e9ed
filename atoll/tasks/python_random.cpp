#include "atoll/tasks/python_random.h"

#include <array>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

#include "atoll/base/check.h"

namespace atl::tasks {
namespace {

/// The twister's first state from a key of one word: init_by_array (Matsumoto & Nishimura 2002).
/// In the shape that std::mersenne_twister_engine takes a state in.
class KeyedState {
 public:
  using result_type = uint32_t;

  explicit KeyedState(uint32_t key) : key_(key) {}

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    std::array<uint32_t, 624> state{};
    ATOLL_CHECK(std::distance(begin, end) == std::ssize(state));
    state[0] = 19650218;
    for (uint32_t i = 1; i < state.size(); ++i) {
      state[i] = 1812433253U * folded(state[i - 1]) + i;
    }
    size_t place = 1;
    const auto mix = [&](uint32_t factor, uint32_t plus) {
      state[place] = (state[place] ^ (folded(state[place - 1]) * factor)) + plus;
      if (++place == state.size()) {
        state[0] = state.back();
        place = 1;
      }
    };
    for (size_t i = 0; i < state.size(); ++i) mix(1664525, key_);
    for (size_t i = 1; i < state.size(); ++i) mix(1566083941, -static_cast<uint32_t>(place));
    state[0] = 0x80000000U;
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  static uint32_t folded(uint32_t word) { return word ^ (word >> 30); }

  uint32_t key_;
};

MersenneTwister keyed_twister(uint32_t key) {
  KeyedState state(key);
  return MersenneTwister(state);
}

/// Up to this many, sample() keeps a list of what is left; beyond, a set of what was taken.
size_t list_limit(size_t count) {
  size_t limit = 21;
  if (count <= 5) return limit;
  size_t table = 1;  // The least power of 4 that is not below 3 x count.
  while (table < 3 * count) table *= 4;
  return limit + table;
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : twister_(keyed_twister(seed)) {}

double PythonRandom::uniform() {
  const double high = static_cast<double>(twister_() >> 5);
  const double low = static_cast<double>(twister_() >> 6);
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint64_t PythonRandom::below(uint64_t n) {
  ATOLL_CHECK(n > 0 && n <= (uint64_t{1} << 32));
  const int bits = std::bit_width(n);
  for (;;) {
    // getrandbits: more than 32 come from two words, the low one first.
    const uint64_t low = twister_();
    const uint64_t value =
        bits <= 32 ? low >> (32 - bits) : low | (static_cast<uint64_t>(twister_() >> 31) << 32);
    if (value < n) return value;
  }
}

std::vector<size_t> PythonRandom::sample(size_t population, size_t count) {
  ATOLL_CHECK(count <= population);
  std::vector<size_t> taken;
  if (population <= list_limit(count)) {
    std::vector<size_t> left(population);
    std::iota(left.begin(), left.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const size_t place = below(population - i);
      taken.push_back(left[place]);
      left[place] = left[population - i - 1];
    }
    return taken;
  }
  std::set<size_t> seen;
  while (taken.size() < count) {
    const size_t place = below(population);
    if (seen.insert(place).second) taken.push_back(place);
  }
  return taken;
}

}  // namespace atl::tasks
