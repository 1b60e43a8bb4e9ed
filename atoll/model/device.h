#pragma once
#include <c10/core/Device.h>

#include <string>

namespace atl::model {

/// The device that `text` names ("cpu", "cuda", "cuda:1"), tried with a small tensor. Throws
/// UsageError that names `option` when it is no device or this machine or build has none.
at::Device usable_device(const std::string& text, const std::string& option);

}  // namespace atl::model
