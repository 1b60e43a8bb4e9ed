#include "atoll/base/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "atoll/base/clock.h"

namespace atl {
namespace {

bool ends_in_a_line(const Descriptor& file) {
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  char last = '\n';
  return end <= 0 || ::pread(file.get(), &last, 1, end - 1) != 1 || last == '\n';
}

std::optional<KeptEvent> event_from(std::string line) {
  using nlohmann::json;
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const auto is = [&](const char* name, bool (json::*of_type)() const noexcept) {
    const auto field = object.find(name);
    return field != object.end() && ((*field).*of_type)();
  };
  if (!is("time", &json::is_number) || !is("kind", &json::is_string) ||
      !is("sentence", &json::is_string)) {
    return std::nullopt;
  }
  return KeptEvent{.time = object["time"],
                   .kind = object["kind"],
                   .sentence = object["sentence"],
                   .line = std::move(line)};
}

}  // namespace

void tell_on_stderr(const std::string& sentence) {
  std::fprintf(stderr, "atoll: %s\n", sentence.c_str());
}

EventLog::EventLog(const std::filesystem::path& folder,
                   std::function<void(const std::string&)> tell)
    : tell_(std::move(tell)) {
  if (folder.empty()) return;
  path_ = folder / kEventsFile;
  file_ = Descriptor(path_, O_RDWR | O_CREAT | O_APPEND);
  if (file_.get() < 0) report(std::strerror(errno));
  is_torn_ = !ends_in_a_line(file_);
}

void EventLog::add(const Event& event) {
  const std::scoped_lock lock(mutex_);
  write(event);
  tell_(event.sentence);
}

void EventLog::keep(const Event& event) {
  const std::scoped_lock lock(mutex_);
  write(event);
}

void EventLog::write(const Event& event) {
  if (file_.get() < 0) return;
  // In one write, as others may add lines too.
  const std::string line = (is_torn_ ? "\n" : "") + to_json(event, wall_time()) + "\n";
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == std::ssize(line)) {
    is_torn_ = false;
    return;
  }
  if (written > 0) is_torn_ = true;
  report(written < 0 ? std::strerror(errno) : "the disk is full");
}

void EventLog::report(const char* reason) {
  if (std::exchange(has_failed_, true)) return;
  tell_("warning: '" + path_.string() + "' does not take events: " + reason);
}

std::optional<KeptEvent> EventReader::next() {
  if (!in_.is_open()) in_.open(path_, std::ios::binary);
  while (in_.is_open()) {
    const auto begin = in_.tellg();
    std::string line;
    if (!std::getline(in_, line) || in_.eof()) {  // It ends without the end of a line.
      in_.clear();
      in_.seekg(begin);
      return std::nullopt;
    }
    if (auto event = event_from(std::move(line))) return event;
  }
  return std::nullopt;
}

}  // namespace atl
