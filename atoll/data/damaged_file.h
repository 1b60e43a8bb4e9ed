#pragma once
#include "atoll/base/error.h"

namespace atl::data {

/// What a file holds is not what it should be, whatever reads it: truncated, damaged, or not
/// compressed as its name says. A file that cannot be read at all is a plain InputError.
class DamagedFile : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace atl::data
