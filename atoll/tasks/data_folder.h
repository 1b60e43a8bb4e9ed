#pragma once
// A data set of the Hub as people have it on disk: which files of a folder are which split.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace atl::tasks {

/// Name at the Hub -> folder.
using DataFolders = std::map<std::string, std::filesystem::path>;
using SplitFiles = std::map<std::string, std::vector<std::filesystem::path>>;

/// The files of each split below `folder`, in the order of their parts. Understood are what
/// `datasets` writes (save_to_disk(), its cache), snapshots of the Hub (also a whole
/// datasets--OWNER--NAME of its cache), and files that are named by their split
/// (validation.jsonl, CONFIG/test-00000-of-00002.parquet). `config` is a part of the data set,
/// empty where the task names none. Throws InputError: no folder, no file whose split is known, a
/// config that is not there, several of which none is named, a split in files of several kinds.
SplitFiles find_splits(const std::filesystem::path& folder, const std::string& config);

/// The files of a split, also where they have another of its usual names (val, dev for validation;
/// eval for test); nullptr where there are none, or several such.
const std::vector<std::filesystem::path>* files_of(const SplitFiles& splits,
                                                   const std::string& split);

/// Whether Arrow's library is needed to read it.
bool is_table(const std::filesystem::path& file);

}  // namespace atl::tasks
