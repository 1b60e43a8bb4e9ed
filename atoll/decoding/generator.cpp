#include "atoll/decoding/generator.h"

namespace atl::decoding {

std::string name_of(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

}  // namespace atl::decoding
