#pragma once
// The events of a run as lines of JSON in its folder's events.jsonl, and their sentences on stderr.
// The file is a history: it is only added to, by every process that works in the folder. A line is
// written whole, but not synced: a power cut may take the last ones. A disk that does not take them
// is reported once and stops nobody.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/base/event.h"

namespace atl {

inline constexpr const char* kEventsFile = "events.jsonl";

/// "atoll: SENTENCE" on stderr.
void tell_on_stderr(const std::string& sentence);

/// Thread-safe.
class EventLog {
 public:
  /// Sentences go to `tell`. Without a folder nothing is kept.
  explicit EventLog(const std::filesystem::path& folder,
                    std::function<void(const std::string& sentence)> tell = tell_on_stderr);

  /// Keeps it and tells it.
  void add(const Event& event);
  /// For what is told by others: the error with which a process ends.
  void keep(const Event& event);
  /// The same as a function; the log must outlive it.
  EventSink sink() {
    return [this](const Event& event) { add(event); };
  }

 private:
  void write(const Event& event);
  void report(const char* reason);

  std::function<void(const std::string&)> tell_;
  std::mutex mutex_;
  std::filesystem::path path_;
  Descriptor file_;
  bool is_torn_ = false;  // The file does not end with a whole line.
  bool has_failed_ = false;
};

/// An event as it was kept.
struct KeptEvent {
  double time = 0;  // Seconds since 1970.
  std::string kind;
  std::string sentence;
  std::string line;  // All of it: a JSON object.
};

/// Reads a file of events from its begin, and what is added meanwhile. Not thread-safe.
class EventReader {
 public:
  explicit EventReader(std::filesystem::path path) : path_(std::move(path)) {}

  /// The next one, or nothing so far: the file may not be there yet, or its last line not be whole.
  /// Lines that are no events are passed over.
  std::optional<KeptEvent> next();

 private:
  std::filesystem::path path_;
  std::ifstream in_;
};

}  // namespace atl
