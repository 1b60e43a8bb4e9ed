#pragma once
#include "atoll/base/error.h"

namespace atl {

/// One of the processes that this one works with was lost; the same command begins again from what
/// is kept. The program ends with the code, as those do that are to be started again.
class ProcessLost : public InputError {
 public:
  using InputError::InputError;
};
constexpr int kProcessLostStatus = 75;

}  // namespace atl
