#pragma once
// Whether two machines have the same model: servers of its layers must.
#include <string>

#include "atoll/weights/config.h"
#include "atoll/weights/model_files.h"

namespace atl::weights {

/// 64 hexadecimal digits over the architecture, each tensor's name, type and size, and samples of
/// its values (the first, middle and last 4 KiB): checkpoints of one training differ in nearly
/// every value. It reads a few megabytes of any model, and is no proof against who lies.
std::string model_digest(const ModelConfig& config, const ModelFiles& files);

}  // namespace atl::weights
