#include "atoll/tasks/task_selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "atoll/base/error.h"
#include "atoll/tasks/task_file.h"
#include "atoll/tasks/task_heading.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 50'000;
constexpr size_t kMaxTasks = 10'000;
constexpr int kMaxDepth = 20;

/// A file's settings and where they came from.
struct Entry {
  Json settings;
  fs::path folder;
  bool is_group() const { return settings.contains("group"); }
};

constexpr std::string_view kGroupKeys[] = {"group", "group_alias", "task", "aggregate_metric_list",
                                           "metadata"};

bool is_group_key(const std::string& key) {
  return std::ranges::find(kGroupKeys, key) != std::end(kGroupKeys);
}

class TaskIndex {
 public:
  /// Files that cannot be read are passed over: they may be no task files. They are told of when a
  /// name is not found.
  void add_folder(const fs::path& folder, bool recursively) {
    if (!fs::is_directory(folder)) {
      throw InputError(fmt::format("'{}' is not a folder", folder.string()));
    }
    std::vector<fs::path> files;
    const auto add = [&](const fs::directory_entry& entry) {
      const std::string extension = entry.path().extension();
      if (extension != ".yaml" && extension != ".yml" && extension != ".json") return;
      files.push_back(entry.path());
      if (files.size() > kMaxFiles) {
        throw InputError(fmt::format("'{}' has more than {} files that may be tasks",
                                     folder.string(), kMaxFiles));
      }
    };
    constexpr auto kSkip = fs::directory_options::skip_permission_denied;
    if (recursively) {
      for (const auto& entry : fs::recursive_directory_iterator(folder, kSkip)) add(entry);
    } else {
      for (const auto& entry : fs::directory_iterator(folder, kSkip)) add(entry);
    }
    std::ranges::sort(files);
    for (const fs::path& file : files) {
      if (const auto heading = headings_.read(file)) {
        if (!heading->group && !heading->task) continue;
        const std::string& name = heading->group ? *heading->group : *heading->task;
        if (!heading->group) add_tags(name, heading->tags.value_or(std::vector<std::string>()));
        entries_.emplace(name, Known{.file = file, .entry = {}});
        continue;
      }
      try {
        add_entry({read_task_file(file), file.parent_path()});
      } catch (const InputError& error) {
        unread_[file.stem()] = error.what();
      }
    }
  }

  /// The name of what the file describes. Later entries of a name do not replace earlier ones.
  std::string add_entry(Entry entry) {
    const char* const key = entry.is_group() ? "group" : "task";
    if (!entry.settings.contains(key) || !entry.settings[key].is_string()) return "";
    const std::string name = entry.settings[key];
    const Json tag = entry.settings.value("tag", Json(nullptr));
    for (const Json& word : tag.is_array() ? tag : Json::array({tag})) {
      if (!entry.is_group() && word.is_string()) add_tags(name, {word.get<std::string>()});
    }
    entries_.emplace(name, Known{.file = {}, .entry = std::move(entry)});
    return name;
  }

  /// Reads the file when it is asked for the first time.
  const Entry* find(const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return nullptr;
    Known& known = found->second;
    if (!known.entry) known.entry = Entry{read_task_file(known.file), known.file.parent_path()};
    return &*known.entry;
  }
  const std::set<std::string>* find_tag(const std::string& name) const {
    const auto found = tags_.find(name);
    return found == tags_.end() ? nullptr : &found->second;
  }

  [[noreturn]] void fail_missing(const std::string& name) const {
    if (const auto unread = unread_.find(name); unread != unread_.end()) {
      throw InputError(unread->second);
    }
    std::string hint;
    if (!unread_.empty()) {
      hint = fmt::format("; {} files could not be read, the first: {}", unread_.size(),
                         unread_.begin()->second);
    }
    throw InputError(
        fmt::format("there is no task, group or tag '{}' among {} in the folders that "
                    "were searched; --include-path DIR names one{}",
                    name, entries_.size(), hint));
  }

 private:
  struct Known {
    fs::path file;
    std::optional<Entry> entry;
  };

  void add_tags(const std::string& task, const std::vector<std::string>& tags) {
    for (const std::string& tag : tags) tags_[tag].insert(task);
  }

  HeadingReader headings_;
  std::map<std::string, Known> entries_;
  std::map<std::string, std::set<std::string>> tags_;
  std::map<std::string, std::string> unread_;  // By the file's name; why.
};

class Selector {
 public:
  Selector(TaskIndex& index, const DataFolders& data) : index_(index), data_(data) {}

  /// Adds what `name` stands for; what the file says gives way to `overrides`. Returns the names.
  std::vector<std::string> add(const std::string& name, const Json& overrides, int depth) {
    if (const Entry* entry = index_.find(name)) {
      if (entry->is_group()) return {add_group(name, *entry, overrides, depth)};
      return {add_task(entry->settings, entry->folder, overrides)};
    }
    const auto* tagged = index_.find_tag(name);
    if (tagged == nullptr) index_.fail_missing(name);
    std::vector<std::string> names;
    for (const std::string& task : *tagged) {
      const Entry& entry = *index_.find(task);
      names.push_back(add_task(entry.settings, entry.folder, overrides));
    }
    return names;
  }

  TaskSelection take() { return std::move(selection_); }

 private:
  std::string add_task(Json settings, const fs::path& folder, const Json& overrides) {
    for (const auto& [key, value] : overrides.items()) settings[key] = value;
    Task task = read_task(settings, folder, data_);
    if (std::ranges::count(selection_.tasks, task.name, &Task::name) > 0) {
      throw InputError(fmt::format("task '{}' is asked for twice", task.name));
    }
    if (selection_.tasks.size() == kMaxTasks) {
      throw InputError(fmt::format("more than {} tasks", kMaxTasks));
    }
    selection_.tasks.push_back(std::move(task));
    return selection_.tasks.back().name;
  }

  /// What is no setting of the group itself is one of its tasks'.
  std::string add_group(const std::string& name, const Entry& entry, const Json& overrides,
                        int depth) {
    const auto fail = [&](const std::string& what) {
      throw InputError(fmt::format("group '{}': {}", name, what));
    };
    if (depth > kMaxDepth || std::ranges::count(selection_.groups, name, &TaskGroup::name) > 0) {
      fail("it is in itself, or asked for twice");
    }
    const Json& settings = entry.settings;
    TaskGroup group{.name = name, .alias = name, .version = "N/A"};
    const Json alias = settings.value("group_alias", Json(nullptr));
    if (alias.is_string()) group.alias = alias;
    const Json metadata = settings.value("metadata", Json::object());
    if (metadata.is_object() && metadata.contains("version")) {
      const Json& version = metadata["version"];
      group.version = version.is_string() ? version.get<std::string>() : version.dump();
    }
    group.metrics = read_metrics(settings, name);
    const size_t place = selection_.groups.size();
    selection_.groups.push_back(group);

    Json for_tasks = Json::object();
    for (const auto& [key, value] : settings.items()) {
      if (!is_group_key(key) && key != "tag") for_tasks[key] = value;
    }
    for (const auto& [key, value] : overrides.items()) for_tasks[key] = value;
    const Json members = settings.value("task", Json(nullptr));
    if (!members.is_array() || members.empty()) {
      fail("\"task\" is not a list of tasks (a task names the groups it belongs to with tag)");
    }
    for (const Json& member : members) {
      for (std::string& added : add_member(name, entry.folder, member, for_tasks, depth)) {
        selection_.groups[place].members.push_back(std::move(added));
      }
    }
    return name;
  }

  std::vector<std::string> add_member(const std::string& group, const fs::path& folder,
                                      const Json& member, const Json& for_tasks, int depth) {
    if (member.is_string()) return add(member, for_tasks, depth + 1);
    const auto named = [&](const char* key) {
      return member.is_object() && member.contains(key) && member[key].is_string();
    };
    if (!named("group") && !named("task")) {
      throw InputError(
          fmt::format("group '{}' lists something without \"task\" or \"group\"", group));
    }
    const std::string name = named("group") ? member["group"] : member["task"];
    const Entry* known = index_.find(name);
    if (named("group") && known == nullptr) {  // Written out here.
      return {add_group(group + "::" + name, {member, folder}, for_tasks, depth + 1)};
    }
    Json overrides = for_tasks;
    for (const auto& [key, value] : member.items()) {
      if (key != "task" && key != "group") overrides[key] = value;
    }
    if (known != nullptr || index_.find_tag(name) != nullptr) {
      return add(name, overrides, depth + 1);
    }
    overrides["task"] = group + "::" + name;
    return {add_task(Json::object(), folder, overrides)};
  }

  static std::vector<GroupMetric> read_metrics(const Json& settings, const std::string& name) {
    const auto fail = [&](const std::string& what) {
      throw InputError(fmt::format("group '{}': aggregate_metric_list: {}", name, what));
    };
    Json list = settings.value("aggregate_metric_list", Json(nullptr));
    if (list.is_null()) return {};
    if (list.is_object()) list = Json::array({list});
    std::vector<GroupMetric> metrics;
    for (const Json& entry : list) {
      if (!entry.is_object() || !entry.contains("metric") || !entry["metric"].is_string()) {
        fail("an entry without \"metric\"");
      }
      GroupMetric metric{.name = entry["metric"]};
      for (const auto& [key, value] : entry.items()) {
        if (key == "weight_by_size" && value.is_boolean()) {
          metric.weight_by_size = value;
        } else if (key == "aggregation") {
          if (value != "mean")
            fail(fmt::format("aggregation {}: there is only mean", value.dump()));
        } else if (key == "filter_list") {
          if (value != "none" && value != Json::array({"none"}) && !value.is_null()) {
            fail(fmt::format("filter_list {}: there are no filters but none", value.dump()));
          }
        } else if (key != "metric") {
          fail(fmt::format("\"{}\" is not supported", key));
        }
      }
      metrics.push_back(std::move(metric));
    }
    return metrics;
  }

  TaskIndex& index_;
  const DataFolders& data_;
  TaskSelection selection_;
};

bool is_file_name(const std::string& word) {
  return word.find('/') != std::string::npos || word.ends_with(".yaml") || word.ends_with(".yml") ||
         word.ends_with(".json");
}

}  // namespace

TaskSelection select_tasks(const std::vector<std::string>& wanted,
                           const std::vector<fs::path>& include_paths, const DataFolders& data) {
  TaskIndex index;
  std::vector<std::string> names;
  std::set<fs::path> beside;
  for (const std::string& word : wanted) {  // Files first: they win over names elsewhere.
    if (!is_file_name(word)) {
      names.push_back(word);
      continue;
    }
    const fs::path file(word);
    const std::string name = index.add_entry({read_task_file(file), file.parent_path()});
    if (name.empty()) {
      throw InputError(
          fmt::format("'{}' names no \"task\" (or \"group\" with a list of tasks)", word));
    }
    names.push_back(name);
    beside.insert(fs::weakly_canonical(file).parent_path());
  }
  for (const fs::path& path : include_paths) index.add_folder(path, true);
  for (const fs::path& path : beside) index.add_folder(path, false);

  Selector selector(index, data);
  for (const std::string& name : names) selector.add(name, Json::object(), 0);
  return selector.take();
}

}  // namespace atl::tasks
