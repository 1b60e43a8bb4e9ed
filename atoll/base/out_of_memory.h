#pragma once
#include "atoll/base/error.h"

namespace atl {

/// Memory is used up; who knows the settings adds which to lower.
class OutOfMemory : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace atl
