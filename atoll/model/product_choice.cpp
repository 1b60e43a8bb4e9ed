#include "atoll/model/product_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"

namespace atl::model {
namespace {

namespace fs = std::filesystem;

constexpr int kLeastRounds = 4;
constexpr int kMostRounds = 24;
constexpr double kSecondsEach = 0.1;  // After which no further round begins.
/// Who takes so much longer than the best, and so long at all, is not run again.
constexpr double kHopeless = 4;
constexpr double kLongSeconds = 0.02;

/// Of multiplications that one thread does in FP32; in BF16 four times as many take as long.
constexpr int64_t kMeasuredWork = int64_t{1} << 28;
constexpr int kMostMeasuredThreads = 64;
constexpr int64_t kMeasuredElements = int64_t{1} << 23;  // Of each matrix.

/// The next one is another file, as older programs would think this one damaged.
constexpr std::string_view kFormat = "2";

int64_t rounded(int64_t size) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(size, 1))));
}

std::string_view name_of(ProductTypes types) {
  constexpr std::array<std::string_view, 3> kNames{"fp32", "bf16", "bf16-fp32"};
  return kNames[static_cast<size_t>(types)];
}

std::array<int64_t, 8> key_of(const ProductShape& shape) {
  return {static_cast<int64_t>(shape.types),
          shape.m,
          shape.n,
          shape.k,
          static_cast<int64_t>(shape.a_is_transposed),
          static_cast<int64_t>(shape.b_is_transposed),
          static_cast<int64_t>(shape.accumulates),
          shape.num_threads};
}

struct Candidate {
  Library library;
  double first;  // Which makes what later runs find.
  std::vector<double> seconds = {};

  double best() const {
    return seconds.empty() ? std::numeric_limits<double>::infinity()
                           : *std::ranges::min_element(seconds);
  }
  /// On a busy machine one lucky run says little: most rounds have to say the same.
  bool gains_over(const Candidate& usual) const {
    size_t won = 0;
    for (size_t i = 0; i < seconds.size(); ++i) won += seconds[i] < usual.seconds[i] ? 1 : 0;
    return best() <= (1 - kLeastGain) * usual.best() && 3 * won >= 2 * seconds.size();
  }
};

}  // namespace

std::string_view name_of(Library library) { return kLibraryNames[static_cast<size_t>(library)]; }

std::optional<Library> library_named(std::string_view name) {
  const auto found = std::ranges::find(kLibraryNames, name);
  if (found == kLibraryNames.end()) return std::nullopt;
  return static_cast<Library>(found - kLibraryNames.begin());
}

ProductShape class_of(const ProductShape& shape) {
  ProductShape wider = shape;
  for (int64_t* size : {&wider.m, &wider.n, &wider.k}) *size = rounded(*size);
  return wider;
}

std::string text_of(const ProductShape& shape) {
  const auto layout = [](bool is_transposed) { return is_transposed ? "columns" : "rows"; };
  return fmt::format("{} m={} n={} k={} a={} b={}{} threads={}", name_of(shape.types), shape.m,
                     shape.n, shape.k, layout(shape.a_is_transposed), layout(shape.b_is_transposed),
                     shape.accumulates ? " adds" : "", shape.num_threads);
}

ProductShape measured_part(const ProductShape& shape) {
  const int64_t most_work = kMeasuredWork * (shape.types == ProductTypes::kFp32 ? 1 : 4) *
                            std::clamp(shape.num_threads, 1, kMostMeasuredThreads);
  ProductShape part = shape;
  const auto is_too_much = [&] {
    return std::max({part.m * part.n, part.m * part.k, part.k * part.n}) > kMeasuredElements ||
           part.m * part.n > most_work / part.k;
  };
  while (is_too_much()) {
    int64_t& longest =
        *std::ranges::max({&part.m, &part.n, &part.k}, {}, [](auto* p) { return *p; });
    longest = (longest + 1) / 2;
  }
  return part;
}

Library quickest(std::span<const Library> candidates, const ProductRun& run) {
  std::vector<Candidate> all;
  for (const Library library : candidates) all.push_back({library, run(library)});
  const double shortest = std::ranges::min_element(all, {}, &Candidate::first)->first;
  std::erase_if(all, [&](const Candidate& one) {
    return one.first > kLongSeconds && one.first > kHopeless * shortest;
  });
  double spent = 0;
  const double enough = kSecondsEach * static_cast<double>(all.size());
  for (int round = 0; round < kMostRounds && (round < kLeastRounds || spent < enough); ++round) {
    for (Candidate& one : all) spent += one.seconds.emplace_back(run(one.library));
  }
  // Processors share AMX among neighbours: a moment in which they use it must not decide for good.
  // Where vectors multiply, tiles are as good a choice as the first, and round once.
  auto usual = std::ranges::find(all, Library::kTiles, &Candidate::library);
  if (usual == all.end()) usual = std::ranges::find(all, candidates.front(), &Candidate::library);
  if (usual != all.end()) {
    std::erase_if(all, [it = *usual](const Candidate& one) {
      return one.library != it.library && !one.gains_over(it);
    });
  }
  return std::ranges::min_element(all, {}, &Candidate::best)->library;
}

ProductPolicy product_policy(const char* setting, const char* cache, const char* home,
                             std::string_view machine) {
  const auto is_set = [](const char* text) { return text != nullptr && *text != '\0'; };
  const std::string_view said = is_set(setting) ? setting : "measured";
  if (said == "usual") return {};
  if (const auto library = library_named(said)) return {.pinned = library};
  if (said.find('/') != said.npos) return {.file = fs::path(said)};
  if (said != "measured") {
    throw UsageError(
        fmt::format("the environment variable ATOLL_PRODUCTS is '{}': it must be measured, usual, "
                    "{}, or a path "
                    "with a slash",
                    said, fmt::join(kLibraryNames, ", ")));
  }
  fs::path folder;
  if (is_set(cache)) {
    folder = cache;
  } else if (is_set(home)) {
    folder = fs::path(home) / ".cache";
  } else {
    return {};
  }
  const std::string digest = hex(Sha256().update(kFormat).update(machine).finish());
  return {.file = folder / "atoll" / fmt::format("products-{}.txt", digest.substr(0, 16))};
}

ProductChoices::ProductChoices(ProductPolicy policy) : policy_(std::move(policy)) {
  if (policy_.file) memory_.emplace(*policy_.file);
}

Library ProductChoices::choose(const ProductShape& shape, std::span<const Library> candidates,
                               const std::function<ProductRun(const ProductShape&)>& prepare) {
  const auto key = key_of(class_of(shape));
  const auto found = chosen_.find(key);
  if (found != chosen_.end()) return found->second;
  const Library library = look_up(shape, candidates, prepare);
  chosen_.emplace(key, library);
  return library;
}

Library ProductChoices::look_up(const ProductShape& shape, std::span<const Library> candidates,
                                const std::function<ProductRun(const ProductShape&)>& prepare) {
  std::optional<Library> answer = policy_.pinned;
  if (memory_ && candidates.size() > 1) {
    const auto text = memory_->find_or_measure(text_of(class_of(shape)), [&] {
      return std::string(name_of(quickest(candidates, prepare(measured_part(shape)))));
    });
    if (text) answer = library_named(*text);
  }
  const bool can = answer && std::ranges::find(candidates, *answer) != candidates.end();
  return can ? *answer : candidates.front();
}

}  // namespace atl::model
