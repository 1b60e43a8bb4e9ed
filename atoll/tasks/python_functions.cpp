#include "atoll/tasks/python_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/number.h"
#include "atoll/text/python_text.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "!function";
constexpr size_t kMaxFileBytes = size_t{1} << 20;

const std::string& text_of(const Json& document, const char* field) {
  if (!document.contains(field) || !document[field].is_string()) {
    throw InputError(fmt::format("there is no text \"{}\"", field));
  }
  return document[field].get_ref<const std::string&>();
}

/// re.sub("\\[.*?\\]", "", text): a bracket closes on its own line or is none.
std::string without_brackets(std::string_view text) {
  std::string kept;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const size_t end = text.find_first_of("]\n", i);
      if (end != std::string_view::npos && text[end] == ']') {
        i = end;
        continue;
      }
    }
    kept += text[i];
  }
  return kept;
}

std::string hellaswag_text(std::string_view text) {
  std::string clean =
      text::replace_text(text::strip(text, text::Side::kBoth), " [title]", ". ", -1);
  clean = without_brackets(clean);
  return text::replace_text(clean, "  ", " ", -1);
}

/// int(label).
int64_t whole_label(const Json& document) {
  const Json label = document.value("label", Json());
  if (label.is_number_integer()) return label.get<int64_t>();
  if (label.is_string()) {
    const std::string_view digits =
        text::strip(label.get_ref<const std::string&>(), text::Side::kBoth);
    if (const auto value = number_in<int64_t>(digits, 10)) return *value;
  }
  throw InputError(fmt::format("\"label\" is {}, which is no number", label.dump()));
}

Json hellaswag_document(const Json& document) {
  const std::string context =
      text_of(document, "ctx_a") + " " + text::capitalize(text_of(document, "ctx_b"));
  Json changed = document;
  changed["query"] = hellaswag_text(text_of(document, "activity_label") + ": " + context);
  Json choices = Json::array();
  const Json endings = document.value("endings", Json());
  if (!endings.is_array()) throw InputError("there is no list \"endings\"");
  for (const Json& ending : endings) {
    if (!ending.is_string()) throw InputError("\"endings\" has something that is no text");
    choices.push_back(hellaswag_text(ending.get_ref<const std::string&>()));
  }
  changed["choices"] = std::move(choices);
  changed["gold"] = whole_label(document);
  return changed;
}

/// Where the blank stands that the options fill.
size_t winogrande_blank(const std::string& sentence) {
  const size_t place = sentence.find('_');
  if (place == std::string::npos) throw InputError("\"sentence\" has no blank (_)");
  return place;
}

Json winogrande_text(const Json& document) {
  const std::string& answer = text_of(document, "answer");
  if (answer != "1" && answer != "2") {
    throw InputError(fmt::format("\"answer\" is \"{}\", neither 1 nor 2", answer));
  }
  return answer == "1" ? 0 : 1;
}

Json winogrande_target(const Json& document) {
  const std::string& sentence = text_of(document, "sentence");
  const std::string_view rest = std::string_view(sentence).substr(winogrande_blank(sentence) + 1);
  return std::string(text::strip(rest, text::Side::kBoth));
}

Json winogrande_choice(const Json& document) {
  const std::string& sentence = text_of(document, "sentence");
  const std::string before = sentence.substr(0, winogrande_blank(sentence));
  return Json::array(
      {before + text_of(document, "option1"), before + text_of(document, "option2")});
}

struct Known {
  std::string_view task;
  std::string_view name;
  std::string_view file_digest;  // SHA-256 of the file's lines of code.
  NativeFunction call;
};

constexpr std::string_view kHellaswag =
    "72cf98b4d758dc355d0cd68f230cd60cf2111e0e3a8a9ad2fa0be0e8de91842f";
constexpr std::string_view kWinogrande =
    "4e93712010426885c10560ef651fe912df21ef3e61259fa8efd713d8f395cb73";
constexpr Known kKnown[] = {
    {"hellaswag", "process_docs", kHellaswag, hellaswag_document},
    {"winogrande", "doc_to_text", kWinogrande, winogrande_text},
    {"winogrande", "doc_to_target", kWinogrande, winogrande_target},
    {"winogrande", "doc_to_choice", kWinogrande, winogrande_choice},
};

std::vector<std::string_view> code_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (const std::string_view line : text::split_lines(text, false)) {
    const std::string_view code = text::strip(line, text::Side::kRight);
    const std::string_view begin = text::strip(code, text::Side::kLeft);
    if (!begin.empty() && begin.front() != '#') lines.push_back(code);
  }
  return lines;
}

std::string digest_of(std::string_view text) {
  Sha256 digest;
  for (const std::string_view line : code_lines(text)) digest.update(line).update("\n");
  return hex(digest.finish());
}

/// A function's lines, as Python's inspect.getsource gives them.
std::string source_of(std::string_view text, std::string_view name) {
  const std::string begin = fmt::format("def {}(", name);
  std::string source;
  std::string pending;  // Empty lines and comments, which may stand behind its end.
  bool is_inside = false;
  for (const std::string_view line : text::split_lines(text, true)) {
    const bool is_code = line.find_first_not_of(" \t\r\n") != std::string_view::npos;
    if (line.starts_with(begin)) {
      is_inside = true;
    } else if (is_inside && is_code && line.front() != ' ' && line.front() != '\t') {
      break;
    }
    if (!is_inside) continue;
    pending += line;
    if (is_code) source += std::exchange(pending, {});
  }
  return source;
}

std::string known_names() {
  std::string names;
  for (const Known& known : kKnown) {
    names += fmt::format("{}{} of {}", names.empty() ? "" : ", ", known.name, known.task);
  }
  return names;
}

}  // namespace

Json function_value(const std::string& name, const fs::path& folder) {
  std::string module = name.substr(0, std::min(name.rfind('.'), name.size()));
  std::ranges::replace(module, '.', '/');
  return {{kMark, name}, {"file", (folder / (module + ".py")).string()}};
}

bool is_function(const Json& value) { return value.is_object() && value.contains(kMark); }

bool has_function(const Json& value) {
  return is_function(value) || (value.is_structured() && std::ranges::any_of(value, has_function));
}

PythonFunction known_function(const Json& value) {
  const std::string name = value.at(kMark).is_string() ? value.at(kMark).get<std::string>() : "";
  const Json file = value.value("file", Json());
  const auto fail = [&](const std::string& why) {
    throw InputError(
        fmt::format("!function {}: {}; functions in Python are not run, and those that "
                    "are built in are lm-evaluation-harness's {}: write a template "
                    "(Jinja) instead, or change the data file",
                    name, why, known_names()));
  };
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || !file.is_string()) fail("it names no module");
  const fs::path path(file.get<std::string>());
  std::error_code missing;
  if (fs::file_size(path, missing) > kMaxFileBytes || missing) {
    fail(fmt::format("'{}' is not there to tell which function it is", path.string()));
  }
  const std::string text = read_file(path);
  const std::string digest = digest_of(text);
  for (const Known& known : kKnown) {
    if (known.file_digest == digest && name.substr(dot + 1) == known.name) {
      return {known.call, source_of(text, known.name)};
    }
  }
  fail(fmt::format("'{}' holds another function than is built in", path.string()));
  return {};
}

}  // namespace atl::tasks
