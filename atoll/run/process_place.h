#pragma once
// Which of an island's processes this one is, and where they meet, as who started it says in the
// environment: torchrun (or whoever sets its variables, Atoll among them), or Slurm's srun. A pure
// function of the variables. LibTorch-free.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace atl::run {

/// Name -> value.
using Environment = std::map<std::string, std::string, std::less<>>;

/// This process's.
Environment process_environment();

struct ProcessPlace {
  int64_t rank = 0;  // Process 0 leads.
  int64_t size = 1;
  int64_t local_rank = 0;  // Among those on this machine: which device is its own.
  int64_t num_cpus = 0;    // That are its own, if who started it says so; 0: see local_size.
  int64_t local_size = 1;  // Processes that share this machine's.
  std::string address;     // Where the processes meet: a host,
  uint16_t port = 0;
  bool is_kept_open = false;  // Who started the processes listens there; else process 0 does.
  int listener = -1;          // A socket that listens there already, for process 0; -1: none.
  std::string attempt;        // Tells a start from those before it at the same place.

  bool leads() const { return rank == 0; }
};

/// Most processes of an island.
inline constexpr int64_t kMostProcesses = 1024;
/// The name of the variable with ProcessPlace::listener.
inline constexpr std::string_view kListenerVariable = "ATOLL_PROCESS_LISTENER";
/// Of the one whose value is part of ProcessPlace::attempt: who does not know it finds nothing.
inline constexpr std::string_view kKeyVariable = "ATOLL_PROCESS_KEY";

/// Nothing where this process is an island on its own. `asked`: how many processes the user wants
/// the island to have; 0: as many as the environment says. Throws UsageError naming the variable
/// that is missing or wrong.
std::optional<ProcessPlace> process_place(const Environment& environment, int64_t asked);

/// "node03" of Slurm's "node[03-05,9],other". Throws UsageError.
std::string first_host(std::string_view list);

}  // namespace atl::run
