#pragma once
// When and how replicas agree.
#include <cstdint>
#include <string>

#include "atoll/base/settings.h"

namespace atl::sync {

struct SyncOptions {
  std::string method = "diloco";
  int64_t sync_every = 20;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  bool outer_nesterov = true;
  std::string codec = "fp32";

  void visit(SettingList& list);
};

}  // namespace atl::sync
