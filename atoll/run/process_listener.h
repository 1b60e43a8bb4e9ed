#pragma once
// Where process 0 of an island listens: at the address that the others were told, and at no other.
// LibTorch-free.
#include <cstdint>
#include <optional>
#include <string>

namespace atl::run {

struct ProcessListener {
  int socket = -1;  // It stays open over execv().
  uint16_t port = 0;
};

/// Port 0: any that is free. Nothing where the host stands for no address of this machine that
/// other machines could reach: behind a translated address, or by a name that only means "here"
/// (but `host` itself says 127.0.0.1, ::1 or localhost where all processes are here). Throws
/// InputError with the reason where the port is taken.
std::optional<ProcessListener> listen_for_processes(const std::string& host, uint16_t port);

}  // namespace atl::run
