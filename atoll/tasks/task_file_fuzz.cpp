// Task files, documents and literals from strangers: read or refused with an InputError, whatever
// the bytes.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/tasks/documents.h"
#include "atoll/tasks/python_literal.h"
#include "atoll/tasks/task.h"
#include "atoll/tasks/task_file.h"

namespace atl::tasks {
namespace {

void try_yaml(std::string_view text) {
  try {
    const Json settings = parse_task_yaml(text, "fuzz");
    ATOLL_CHECK(settings.is_object());
    const Task task = read_task(settings, "folder", {});
    ATOLL_CHECK(!task.name.empty() && !task.metrics.empty());
    ATOLL_CHECK(task.data_files.contains(task.split));
  } catch (const InputError&) {
  }
}

void try_documents(std::string_view text) {
  try {
    const Documents documents = parse_documents(text, "fuzz");
    for (const Json& row : documents.rows) ATOLL_CHECK(row.size() == documents.fields.size());
  } catch (const InputError&) {
  }
}

void try_literal(std::string_view text) {
  try {
    parse_python_literal(text, "fuzz");
  } catch (const InputError&) {
  }
}

constexpr std::string_view kGood =
    "task: t\ndataset_path: json\ndataset_kwargs:\n  data_files: {test: a.jsonl}\n"
    "test_split: test\noutput_type: multiple_choice\ndoc_to_text: \"{{q}}\"\n"
    "doc_to_choice: [a, b]\ndoc_to_target: 1\nmetric_list:\n  - metric: acc\n";

}  // namespace
}  // namespace atl::tasks

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  atl::tasks::try_yaml(input);
  atl::tasks::try_documents(input);
  atl::tasks::try_literal(input);
  atl::tasks::try_yaml(std::string(atl::tasks::kGood) + std::string(input));
  if (size >= 3) {
    std::string damaged(atl::tasks::kGood);
    damaged.replace((data[0] * 256U + data[1]) % damaged.size(), 1 + data[2] % 8, input.substr(3));
    atl::tasks::try_yaml(damaged);
  }
  return 0;
}
