#pragma once
// The other processes of an island on this machine, where Atoll starts them itself. Only for
// single-threaded programs without LibTorch. LibTorch-free.
#include <cstdint>
#include <string>

namespace atl::run {

/// Starts processes 1 to num_processes - 1, each of the same command, and makes this process number
/// 0: torchrun's variables say so to all (process_place.h). They die with this process, also when
/// it has become another program; Ctrl-C reaches it alone; what they print goes to its stderr.
/// Throws InputError.
void start_followers(const std::string& program, char** argv, int64_t num_processes);

}  // namespace atl::run
