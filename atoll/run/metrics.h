#pragma once
// The records of a run: metrics.jsonl, rounds.jsonl and TensorBoard events. LibTorch-free. One
// owner thread.
#include <filesystem>
#include <fstream>
#include <string>

#include "atoll/base/event.h"
#include "atoll/run/progress.h"
#include "atoll/run/tensorboard_file.h"

namespace atl::run {

/// A file of JSON objects, one a line, each with its "step".
class JsonLines {
 public:
  /// Opens `folder`/`name`. Lines of steps after `resumed_step` are cut off: the resumed run writes
  /// them again.
  JsonLines(const std::filesystem::path& folder, std::string name, int64_t resumed_step,
            EventSink events);
  /// A failure is a warning, once: training is worth more than its records.
  void add(const std::string& line);

 private:
  std::string name_;
  EventSink events_;
  std::ofstream out_;
  bool warned_ = false;
};

class Metrics {
 public:
  Metrics(const std::filesystem::path& folder, int64_t resumed_step, const EventSink& events);
  void add(const Progress& progress);
  /// A line of rounds.jsonl.
  void add_round(const std::string& line) { rounds_.add(line); }

 private:
  JsonLines steps_;
  JsonLines rounds_;
  TensorboardFile scalars_;
};

}  // namespace atl::run
