// Task files, documents and literals from strangers: read or refused with an InputError, whatever
// the bytes.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/study/documents.h"
#include "atoll/study/python_literal.h"
#include "atoll/study/task.h"
#include "atoll/study/task_file.h"

namespace atl::study {
namespace {

void try_yaml(std::string_view text) {
  try {
    const Json settings = parse_task_yaml(text, "fuzz");
    ATOLL_CHECK(settings.is_object());
    const Task task = read_task(settings, "folder");
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
}  // namespace atl::study

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  atl::study::try_yaml(input);
  atl::study::try_documents(input);
  atl::study::try_literal(input);
  atl::study::try_yaml(std::string(atl::study::kGood) + std::string(input));
  if (size >= 3) {
    std::string damaged(atl::study::kGood);
    damaged.replace((data[0] * 256U + data[1]) % damaged.size(), 1 + data[2] % 8, input.substr(3));
    atl::study::try_yaml(damaged);
  }
  return 0;
}
