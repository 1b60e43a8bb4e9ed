#include "atoll/weights/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::weights {

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      llama(),   mistral(), qwen2(),     qwen3(),   olmo(),     olmo2(),
      olmo3(),   phi3(),    smollm3(),   granite(), gemma2(),   gemma3(),
      mixtral(), olmoe(),   qwen3_moe(), gpt_oss(), gpt_neox(), gpt2()};
  return table;
}

bool Family::has(std::string_view setting) const {
  if (std::ranges::count(settings, setting) > 0) return true;
  return setting.starts_with("rope_") && setting != "rope_local_theta" && turns();
}

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  return found == families().end() ? nullptr : &*found;
}

const Family& family_of(const ModelConfig& config) {
  const Family* family = find_family(config.architecture);
  if (family != nullptr) return *family;
  throw UsageError(fmt::format("model: 'architecture' must be one of {}, not '{}'", family_names(),
                               config.architecture));
}

std::string family_names(std::string_view setting) {
  std::vector<std::string_view> names;
  for (const Family& family : families()) {
    if (setting.empty() || family.has(setting)) names.push_back(family.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace atl::weights
