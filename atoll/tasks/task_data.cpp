#include "atoll/tasks/task_data.h"

#include <fmt/format.h>

#include "atoll/base/error.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) { throw InputError(what); }

std::vector<fs::path> paths(const Json& names, const fs::path& folder) {
  std::vector<fs::path> files;
  for (const Json& name : names.is_string() ? Json::array({names}) : names) {
    if (!name.is_string()) fail("\"data_files\" has something that is no name of a file");
    files.push_back(folder / name.get<std::string>());
  }
  if (files.empty()) fail("\"data_files\" names no file");
  return files;
}

SplitFiles own_files(const Json& settings, const fs::path& folder) {
  if (settings.contains("dataset_name")) {
    fail("\"dataset_name\" names a part of a data set of the Hub; files have none");
  }
  const Json kwargs = settings.value("dataset_kwargs", Json::object());
  if (!kwargs.is_object() || !kwargs.contains("data_files")) {
    fail("\"dataset_kwargs\" has no \"data_files\"");
  }
  for (const auto& [key, value] : kwargs.items()) {
    if (key != "data_files") fail(fmt::format("dataset_kwargs: \"{}\" is not supported", key));
  }
  const Json& files = kwargs["data_files"];
  SplitFiles by_split;
  if (!files.is_object()) {
    by_split["train"] = paths(files, folder);  // As Hugging Face's datasets name it.
    return by_split;
  }
  for (const auto& [split, value] : files.items()) by_split[split] = paths(value, folder);
  return by_split;
}

}  // namespace

SplitFiles read_task_data(const Json& settings, const fs::path& folder, const DataFolders& data) {
  const Json path = settings.value("dataset_path", Json());
  if (!path.is_string()) {
    fail("\"dataset_path\", a data set of the Hub or json for files of lines, is missing");
  }
  const std::string name = path;
  if (name == "json" || name == "arrow" || name == "parquet") return own_files(settings, folder);
  const auto found = data.find(name);
  if (found == data.end()) {
    fail(
        fmt::format("its data, dataset_path \"{0}\", is nowhere: --data {0}=FOLDER says where it "
                    "lies (nothing is downloaded)",
                    name));
  }
  const Json kwargs = settings.value("dataset_kwargs", Json::object());
  for (const auto& [key, value] : kwargs.items()) {
    // It allows a download to run Python, and there is none.
    if (key != "trust_remote_code") {
      fail(fmt::format("dataset_kwargs: \"{}\" is not supported for data of the Hub", key));
    }
  }
  const Json config = settings.value("dataset_name", Json());
  if (!config.is_null() && !config.is_string()) fail("\"dataset_name\" is not a text");
  return find_splits(found->second, config.is_string() ? config.get<std::string>() : "");
}

}  // namespace atl::tasks
