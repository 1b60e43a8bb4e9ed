#include "atoll/tasks/task_heading.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr int kMaxDepth = 20;

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  const size_t end = text.find_last_not_of(" \t\r");
  return begin == text.size() ? "" : text.substr(begin, end - begin + 1);
}

std::string_view without_comment(std::string_view text) {
  if (text.starts_with('#')) return "";
  const size_t comment = std::min(text.find(" #"), text.find("\t#"));
  return trimmed(text.substr(0, std::min(comment, text.size())));
}

bool is_in(std::string_view characters, char c) { return characters.find(c) != characters.npos; }

/// A scalar that YAML understands as the text that stands there.
std::optional<std::string> plain_word(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const char quote = text.front();
  if (quote == '"' || quote == '\'') {
    if (text.size() < 2 || text.back() != quote) return std::nullopt;
    const std::string_view inside = text.substr(1, text.size() - 2);
    if (inside.find(quote) != inside.npos || inside.find('\\') != inside.npos) return std::nullopt;
    return std::string(inside);
  }
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!is_letter(quote) && !is_in("_./", quote)) return std::nullopt;
  const bool is_plain = std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || is_in("_-./+ ", c) || c < 0;
  });
  // Those that YAML has meanings for are short, or begin with a point.
  if (!is_plain || text.size() <= 5 || text.front() == '.') {
    static constexpr std::string_view kMeanings[] = {"y",   "n",    "yes",   "no",  "on",
                                                     "off", "true", "false", "null"};
    std::string small(text);
    std::ranges::transform(small, small.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (!is_plain || std::ranges::count(kMeanings, small) > 0) return std::nullopt;
    if (text.front() == '.' && !text.starts_with("./") && !text.starts_with("..")) {
      return std::nullopt;
    }
  }
  return std::string(text);
}

/// Lines of a text, one after the other.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }
  std::string_view peek() const {
    return rest_.substr(0, std::min(rest_.find('\n'), rest_.size()));
  }
  std::string_view take() {
    const std::string_view line = peek();
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    return line;
  }

 private:
  std::string_view rest_;
};

/// The words of a list or a single one, after a key; what goes on over lines is taken from `lines`.
std::optional<std::vector<std::string>> words_of(std::string_view value, Lines& lines) {
  std::vector<std::string> words;
  const auto add = [&](std::string_view text) {
    const auto word = plain_word(text);
    if (word) words.push_back(*word);
    return word.has_value();
  };
  const auto is_indented = [&] {
    return !lines.at_end() && (lines.peek().starts_with(' ') || lines.peek().starts_with('\t'));
  };
  if (value.starts_with('[')) {
    if (!value.ends_with(']')) return std::nullopt;
    std::string_view inside = trimmed(value.substr(1, value.size() - 2));
    while (!inside.empty()) {
      const size_t comma = std::min(inside.find(','), inside.size());
      if (!add(trimmed(inside.substr(0, comma)))) return std::nullopt;
      inside = trimmed(inside.substr(std::min(comma + 1, inside.size())));
    }
    return words;
  }
  if (!value.empty()) {
    if (!add(value) || is_indented()) return std::nullopt;  // A text over several lines.
    return words;
  }
  while (!lines.at_end()) {
    const std::string_view item = without_comment(trimmed(lines.peek()));
    if (item.empty()) {
      lines.take();
      continue;
    }
    if (!item.starts_with("- ")) break;
    if (!add(trimmed(item.substr(2)))) return std::nullopt;
    lines.take();
  }
  if (words.empty() || is_indented()) return std::nullopt;
  return words;
}

void merge(TaskHeading& into, const TaskHeading& from) {
  if (from.task) into.task = from.task;
  if (from.group) into.group = from.group;
  if (from.tags) into.tags = from.tags;
}

}  // namespace

std::optional<TaskHeading> scan_task_heading(std::string_view text) {
  TaskHeading heading;
  Lines lines(text);
  while (!lines.at_end()) {
    const std::string_view line = lines.take();
    // At the left end stand keys, comments, a list's dashes and a document's begin; what else may
    // be there changes how all of it is read.
    if (line.empty() || is_in(" \t\r#", line.front()) || line.starts_with("- ")) continue;
    if (line.starts_with("---") && trimmed(line.substr(3)).empty()) continue;
    if (is_in("{[%\"'?&*!|>-", line.front())) return std::nullopt;
    const size_t colon = line.find(':');
    if (colon == line.npos) return std::nullopt;
    const std::string_view key = trimmed(line.substr(0, colon));
    const bool is_list = key == "tag" || key == "include";
    if (!is_list && key != "task" && key != "group") continue;
    const std::string_view value = without_comment(trimmed(line.substr(colon + 1)));
    if (key == "task" && value.empty()) continue;  // A group's, which its name tells of.
    auto words = words_of(value, lines);
    if (!words || (!is_list && words->size() != 1)) return std::nullopt;
    if (key == "tag") {
      heading.tags = std::move(words);
    } else if (key == "include") {
      heading.includes = *std::move(words);
    } else {
      (key == "task" ? heading.task : heading.group) = words->front();
    }
  }
  return heading;
}

std::optional<TaskHeading> HeadingReader::read(const fs::path& file) {
  return read_merged(file, 0);
}

std::optional<TaskHeading> HeadingReader::read_merged(const fs::path& file, int depth) {
  if (depth > kMaxDepth || file.extension() == ".json") return std::nullopt;
  std::optional<TaskHeading> own;
  try {
    if (fs::file_size(file) > kMaxFileBytes) return std::nullopt;
    own = scan_task_heading(read_file(file));
  } catch (const InputError&) {
    return std::nullopt;
  } catch (const fs::filesystem_error&) {
    return std::nullopt;
  }
  if (!own || own->includes.empty()) return own;
  TaskHeading merged;
  for (const std::string& include : own->includes) {
    const fs::path path = (file.parent_path() / include).lexically_normal();
    auto found = included_.find(path);
    if (found == included_.end()) {
      auto heading = read_merged(path, depth + 1);
      found = included_.emplace(path, std::move(heading)).first;
    }
    if (!found->second) return std::nullopt;
    merge(merged, *found->second);
  }
  merge(merged, *own);
  return merged;
}

}  // namespace atl::tasks
