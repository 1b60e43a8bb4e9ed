#include "atoll/cli/status_events.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/event_log.h"
#include "atoll/base/interrupt.h"
#include "atoll/swarm/rules.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

/// One file, and the event in it that is printed next.
struct Source {
  std::string name;  // Of the folder below the run's; empty: the run's own.
  EventReader reader;
  std::optional<KeptEvent> next;
};

std::vector<Source> sources_in(const fs::path& folder) {
  std::vector<Source> sources;
  const auto add = [&](const std::string& name) {
    const fs::path file = folder / name / kEventsFile;
    if (fs::exists(file)) sources.push_back({.name = name, .reader = EventReader(file)});
  };
  add("");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) add(entry.path().filename().string());
  }
  std::ranges::sort(sources, {}, &Source::name);
  if (sources.empty()) {
    throw InputError(fmt::format("there are no events in '{}' ({})", folder.string(), kEventsFile));
  }
  return sources;
}

void print(const Source& source, const KeptEvent& event, size_t width, bool as_json) {
  if (as_json) {
    auto object = nlohmann::ordered_json::parse(event.line);
    if (!source.name.empty()) object["folder"] = source.name;
    fmt::print("{}\n", object.dump());
    return;
  }
  const auto time = static_cast<std::time_t>(std::clamp(event.time, 0.0, 1e11));
  std::string head = fmt::format("{:%Y-%m-%d %H:%M:%S}  {:<{}}", fmt::localtime(time), source.name,
                                 width == 0 ? 0 : width + 2);
  for (size_t begin = 0; begin <= event.sentence.size();) {  // Some are several lines.
    const size_t end = std::min(event.sentence.find('\n', begin), event.sentence.size());
    fmt::print("{}{}\n", head, swarm::printable(event.sentence.substr(begin, end - begin)));
    head.assign(head.size(), ' ');
    begin = end + 1;
  }
}

}  // namespace

bool sleep_for(double seconds, const Clock& clock) {
  const Time until = clock.now() + duration_of(seconds);
  while (num_interrupts() == 0 && clock.now() < until) ::poll(nullptr, 0, 50);
  return num_interrupts() == 0;
}

void print_events(const fs::path& folder, bool as_json, double watch) {
  std::vector<Source> sources = sources_in(folder);
  size_t width = 0;
  for (const Source& source : sources) width = std::max(width, source.name.size());
  if (watch > 0) watch_interrupts();
  const SystemClock clock;
  const auto time_of = [](const Source& source) {
    return source.next ? source.next->time : std::numeric_limits<double>::infinity();
  };
  do {
    while (true) {
      for (Source& source : sources) {
        if (!source.next) source.next = source.reader.next();
      }
      const auto first = std::ranges::min_element(sources, {}, time_of);
      if (!first->next) break;
      print(*first, *std::exchange(first->next, std::nullopt), width, as_json);
    }
    std::fflush(stdout);
  } while (watch > 0 && sleep_for(watch, clock));
}

}  // namespace atl::cli
