#pragma once
// The processes of one island, for `train` and `join`.
#include <memory>

#include "atoll/cli/train_command.h"
#include "atoll/group/processes.h"

namespace atl::cli {

/// Process 0: all are there. Throws InputError.
std::unique_ptr<group::Processes> meet_others(const AskedOfProcess& asked);

/// Any other: does what process 0 says, to the end. Ctrl-C and SIGTERM are for process 0; when that
/// ends, so does this one. Throws InputError.
void follow_here(const AskedOfProcess& asked);

}  // namespace atl::cli
