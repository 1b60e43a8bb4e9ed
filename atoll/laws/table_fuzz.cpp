// Tables of strangers: read or refused with an InputError; what is read is finite, positive, and
// written as a text that reads the same. What it allows to fit does not end the process.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/laws/comparable.h"
#include "atoll/laws/fit.h"

namespace atl::laws {
namespace {

void try_table(std::string_view text) {
  try {
    const Table table = parse_table(text, "fuzz");
    for (const Run& run : table.runs) {
      ATOLL_CHECK(std::isfinite(run.loss) && run.loss > 0 && run.params > 0 && run.replicas >= 0);
    }
    const std::string written = table_text(table.runs);
    ATOLL_CHECK(table_text(parse_table(written, "again").runs) == written);
    const Comparable compared = comparable_runs(table.runs);
    size_t num_lines = 0;
    for (const Run& run : compared.runs) num_lines += run.lines.size();
    for (const LeftOut& left_out : compared.left_out) num_lines += left_out.lines.size();
    for (const Run& run : table.runs) num_lines -= run.lines.size();
    ATOLL_CHECK(num_lines == 0, "every row counts or is left out");
    fit_runs(compared.runs, {.parametric = {.num_starts = 1}, .bootstrap = 1});
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::laws

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  atl::laws::try_table(input);
  atl::laws::try_table("params,replicas,loss\n" + input);
  // Numbers made of the bytes, so that whole tables get through. Not of every input: each is
  // fitted.
  if (size % 4 != 0) return 0;
  std::string rows = "params,replicas,loss,batch,tokens,sync_every,method\n";
  for (size_t i = 0; i + 4 <= size && i < 80; i += 4) {
    rows += std::to_string(data[i] % 8 + 1) + "e" + std::to_string(data[i + 1] % 20) + "," +
            std::to_string(data[i + 1] % 3) + "," + std::to_string(data[i + 2] + 1) + "e-2," +
            std::to_string(data[i + 3] + 1) + "," + std::to_string(data[i + 3] % 3 + 1) + "e9," +
            std::to_string(data[i] % 2 + 1) + "," + (data[i + 2] % 16 == 0 ? "b" : "a") + "\n";
  }
  atl::laws::try_table(rows);
  return 0;
}
