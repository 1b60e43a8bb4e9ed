#include "atoll/model/device.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "atoll/base/error.h"

namespace atl::model {

at::Device usable_device(const std::string& text, const std::string& option) {
  try {
    const at::Device device(text);
    if (device.is_meta()) throw InputError("it holds no values");
    at::empty({1}, at::TensorOptions().dtype(at::kFloat).device(device));
    return device;
  } catch (const std::exception&) {  // LibTorch's own message is a page long.
    throw UsageError(fmt::format("{} = '{}' cannot be used here; try cpu", option, text));
  }
}

}  // namespace atl::model
