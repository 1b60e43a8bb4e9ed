#pragma once
// For tests: what a simulated island has: what its process begins with, and what it keeps of its
// fragments and of rounds on their way.
#include <cstdint>
#include <map>
#include <string>

#include "atoll/codec/codec.h"
#include "atoll/sim/sim_transport.h"
#include "atoll/testing/simulated_disk.h"

namespace atl::collective {

/// What a process of it begins with.
struct LifeSetup {
  sim::SimNetwork& network;
  uint64_t seed;
  std::string name;
  const Plan& plan;
  const codec::Codec& codec;
  Invariants& invariants;
  Disk& disk;
  Skew skew;
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> facts;
};

struct Flight {  // A round that was begun.
  Theta values;
  Theta residual;
  Theta new_residual;
  Theta next;  // What prepare() made.
};
struct Fragment {
  Theta theta;
  Theta residual;
  bool is_here = false;
};

}  // namespace atl::collective
