#include "atoll/grammar/tool_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "atoll/grammar/schema_case.h"

namespace atl::grammar {
namespace {

constexpr std::string_view kBlanks = " \n\t\r";

/// Without the blanks at its end.
std::string_view said(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

}  // namespace

bool ToolReader::add_text(std::string_view text, Events& events) {
  held_ += text;
  size_t shown = 0;
  bool calls_begin = false;
  size_t behind = 0;
  if (const std::string_view mark = mark_of(form_); !mark.empty()) {
    const size_t found = held_.find(mark);
    calls_begin = found != std::string::npos;
    behind = found + mark.size();
    const size_t before = calls_begin ? found : held_.size() - begun(held_, mark);
    shown = said(std::string_view(held_).substr(0, before)).size();
  } else {  // Without a mark the first character tells.
    behind = held_.find_first_not_of(kBlanks);
    calls_begin = !has_text_ && behind != std::string::npos && held_[behind] == '{';
    if (!calls_begin) shown = said(held_).size();
  }
  if (shown > 0) {
    events.push_back({ToolEvent::Kind::kText, held_.substr(0, shown)});
    has_text_ = true;
  }
  held_.erase(0, calls_begin ? behind : shown);
  return calls_begin;
}

void ToolReader::step_string(char c) {
  if (is_escaped_) {
    is_escaped_ = false;
  } else if (is_in_string_ && c == '\\') {
    is_escaped_ = true;
  } else if (c == '"') {
    is_in_string_ = !is_in_string_;
  }
}

void ToolReader::begin_arguments(Events& events) {
  std::string name;
  const Json call = Json::parse(held_ + "}}", nullptr, /*allow_exceptions=*/false);
  if (call.is_object() && call.contains("name") && call["name"].is_string()) name = call["name"];
  events.push_back({ToolEvent::Kind::kCall, std::move(name)});
  events.push_back({ToolEvent::Kind::kArguments, "{"});
  held_.clear();
  depth_ = 1;
  where_ = Where::kArguments;
}

void ToolReader::add_call(char c, Events& events) {
  if (where_ == Where::kBetween) {  // Whatever a form writes there, it has no such bracket.
    if (c != '{') return;
    held_ = c;
    where_ = Where::kHead;
    return;
  }
  const bool was_in_string = is_in_string_;
  step_string(c);
  const bool is_bracket = !was_in_string && !is_in_string_;
  if (where_ == Where::kHead) {
    held_ += c;
    if (is_bracket && c == '{') begin_arguments(events);
    return;
  }
  events.back().text += c;
  if (!is_bracket) return;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && --depth_ == 0) where_ = Where::kBetween;
}

std::vector<ToolEvent> ToolReader::add(std::string_view text) {
  Events events;
  std::string calls(text);
  if (where_ == Where::kText) {
    if (!add_text(text, events)) return events;
    calls = std::exchange(held_, {});
    where_ = Where::kBetween;
  }
  if (where_ == Where::kArguments) events.push_back({ToolEvent::Kind::kArguments, ""});
  for (const char c : calls) add_call(c, events);
  std::erase_if(events, [](const ToolEvent& event) {
    return event.kind != ToolEvent::Kind::kCall && event.text.empty();
  });
  return events;
}

std::vector<ToolEvent> ToolReader::finish() {
  if (where_ != Where::kText || held_.empty()) return {};
  return {{ToolEvent::Kind::kText, std::exchange(held_, {})}};
}

ToolAnswer read_tool_answer(std::string_view text, ToolForm form) {
  ToolAnswer answer;
  ToolReader reader(form);
  std::vector<ToolEvent> events = reader.add(text);
  std::ranges::move(reader.finish(), std::back_inserter(events));
  for (ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::kText) answer.text += event.text;
    if (event.kind == ToolEvent::Kind::kCall) answer.calls.push_back({std::move(event.text), ""});
    if (event.kind == ToolEvent::Kind::kArguments) answer.calls.back().arguments += event.text;
  }
  return answer;
}

}  // namespace atl::grammar
