#include "atoll/group/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/group/watch.h"

namespace atl::group {
namespace {

/// A store that torchrun keeps may have a number of before for so long.
constexpr Duration kOldNumber = std::chrono::milliseconds(5000);

std::string size_key(int64_t rank) { return fmt::format("size/{}", rank); }

/// Nothing: it has not come yet.
std::optional<int64_t> announced_size(c10d::Store& store, int64_t rank) {
  const auto text = read(store, size_key(rank), Duration::zero());
  return text ? number_in<int64_t>(*text) : std::nullopt;
}

/// Who has not come to the store, and who has with another idea of how many meet there.
struct Absent {
  std::vector<int64_t> missing;
  std::optional<std::pair<int64_t, int64_t>> other;  // Its rank, and the number it knows.
};

Absent find_absent(c10d::Store& store, const run::ProcessPlace& place,
                   const std::vector<int64_t>& awaited) {
  Absent absent;
  for (const int64_t rank : awaited) {
    const std::optional<int64_t> size = announced_size(store, rank);
    if (size == place.size) continue;
    absent.missing.push_back(rank);
    if (size) absent.other = {rank, *size};
  }
  return absent;
}

}  // namespace

void wait_for_all(c10d::Store& store, const run::ProcessPlace& place, Duration patience,
                  const Clock& clock, AnswerTimer& timer) {
  Watch::announce(store, place);
  write(store, size_key(place.rank), fmt::format("{}", place.size));
  const Time begin = clock.now();
  Absent absent;
  absent.missing.resize(static_cast<size_t>(place.size));
  std::iota(absent.missing.begin(), absent.missing.end(), 0);
  while (true) {
    absent = find_absent(store, place, absent.missing);
    timer.answered();
    if (absent.missing.empty()) return;
    const Duration waited = clock.now() - begin;
    // A store ends with process 0, who leaves the others time to see it too.
    if (absent.other && waited >= (place.leads() ? 2 * kOldNumber : kOldNumber)) {
      throw InputError(fmt::format(
          "process {} of this island was started as one of {}, and process {} as one of {}; start "
          "all with the same number of processes",
          absent.other->first, absent.other->second, place.rank, place.size));
    }
    if (waited >= patience) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw InputError(fmt::format(
      "of the {} processes of this island {} {} not come within {:.0f} s (train.process_timeout); "
      "all are to be started with the same command",
      place.size, fmt::join(absent.missing, ", "), absent.missing.size() == 1 ? "has" : "have",
      seconds(patience)));
}

}  // namespace atl::group
