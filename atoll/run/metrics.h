#pragma once
// The records of a run: metrics.jsonl and TensorBoard events. LibTorch-free. One owner thread.
#include <filesystem>
#include <fstream>

#include "atoll/run/event_file.h"
#include "atoll/run/progress.h"

namespace atl::run {

class Metrics {
 public:
  /// Opens `folder`/metrics.jsonl. Lines of steps after `resumed_step` are cut off: the resumed run
  /// writes them again.
  Metrics(const std::filesystem::path& folder, int64_t resumed_step);
  void add(const Progress& progress);

 private:
  std::ofstream out_;
  bool warned_ = false;  // That a write failed.
  EventFile events_;
};

}  // namespace atl::run
