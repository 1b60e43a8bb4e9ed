#include "atoll/weights/model_digest.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/hash.h"
#include "atoll/base/settings.h"

namespace atl::weights {
namespace {

constexpr size_t kSample = 4096;

}  // namespace

std::string model_digest(const ModelConfig& config, const ModelFiles& files) {
  Sha256 hash;
  ModelConfig copy = config;
  SettingList settings;
  copy.visit(settings);
  for (const auto& [name, value] : settings.shared()) {
    hash.update(fmt::format("{}={}\n", name, value));
  }
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    const StoredTensor& tensor = files.tensors().at(i);
    hash.update(fmt::format("{} {} {}\n", specs[i].name, static_cast<int>(tensor.type),
                            tensor.bytes.size()));
    const size_t size = std::min(kSample, tensor.bytes.size());
    for (const size_t begin :
         {size_t{0}, (tensor.bytes.size() - size) / 2, tensor.bytes.size() - size}) {
      hash.update(tensor.bytes.subspan(begin, size));
    }
  }
  return hex(hash.finish());
}

}  // namespace atl::weights
