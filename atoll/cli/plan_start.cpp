#include "atoll/cli/plan_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/run/process_place.h"

namespace atl::cli {
namespace {

const plan::PlannedIsland& island_at(const plan::PlanRequest& request,
                                     const plan::PlanChoice& choice, size_t place) {
  return request.islands[choice.setup.islands[place]];
}

}  // namespace

std::string shared_shard(const plan::PlanRequest& request, const plan::PlanChoice& choice) {
  std::vector<std::string> shards;
  bool has_gpus = false;
  for (size_t place = 0; place < choice.shards.size(); ++place) {
    const plan::PlannedIsland& island = island_at(request, choice, place);
    has_gpus |= !island.is_cpu;
    // For one process it says nothing.
    if (island.devices > 1) shards.push_back(choice.shards[place]);
  }
  if (shards.empty() || (has_gpus && shards.front() == "zero3")) return "none";
  const bool is_shared = std::ranges::count(shards, shards.front()) == std::ssize(shards);
  return is_shared ? shards.front() : "none";
}

std::string start_words(const plan::PlanRequest& request, const plan::PlanChoice& choice,
                        size_t place) {
  const plan::PlannedIsland& island = island_at(request, choice, place);
  std::string words;
  const auto add = [&](const std::string& word) { words += (words.empty() ? "" : " ") + word; };
  if (island.devices > run::kMostProcesses) {
    add(fmt::format("srun --ntasks={}", island.devices));
  } else if (island.devices > 1) {
    add(fmt::format("--processes-per-island {}", island.devices));
  }
  if (!island.is_cpu) add("--train.device=cuda");
  const std::string& shard = choice.shards[place];
  if (island.devices > 1 && shard != shared_shard(request, choice)) add("--train.shard=" + shard);
  return words;
}

std::vector<std::string> start_lines(const plan::PlanRequest& request,
                                     const plan::PlanChoice& choice) {
  std::vector<std::pair<std::string, std::string>> groups;  // Words, and whose.
  for (size_t place = 0; place < choice.shards.size(); ++place) {
    const std::string words = start_words(request, choice, place);
    if (words.empty()) continue;
    const std::string& name = island_at(request, choice, place).name;
    const auto alike =
        std::ranges::find(groups, words, &std::pair<std::string, std::string>::first);
    if (alike == groups.end()) {
      groups.emplace_back(words, name);
    } else {
      alike->second += ", " + name;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [words, names] : groups) lines.push_back(fmt::format("{}: {}", names, words));
  return lines;
}

}  // namespace atl::cli
