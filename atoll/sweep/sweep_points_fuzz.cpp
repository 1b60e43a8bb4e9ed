// What a stranger's points.jsonl may do: be refused with its line, or be read.
#include <cstddef>
#include <cstdint>
#include <string>

#include "atoll/base/error.h"
#include "atoll/sweep/point_files.h"
#include "atoll/sweep/sweep_database.h"

namespace {

void try_points(const std::string& text) {
  try {
    // What was read is written so that it can be read again.
    atl::sweep::parse_points(atl::sweep::points_text(atl::sweep::parse_points(text, "fuzz.jsonl")),
                             "again");
  } catch (const atl::InputError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  try_points(input);
  // The key of no settings, so that lines get through.
  try_points(
      R"({"key":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","settings":{},)"
      R"("status":"done",)" +
      input);
  try {
    atl::sweep::point_result_from_json(input, "fuzz.json");
  } catch (const atl::InputError&) {
  }
  return 0;
}
