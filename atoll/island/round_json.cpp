#include "atoll/island/round_json.h"

#include "atoll/base/fields_json.h"
#include "atoll/base/hash.h"

namespace atl::island {

using json = nlohmann::ordered_json;

std::string to_json(const sync::RoundRecord& record) {
  const collective::Commit& commit = record.commit;
  json out = {{"step", record.step},
              {"sent", commit.step},
              {"round", commit.round},
              {"fragment", commit.fragment},
              {"members", commit.members},
              {"abstainers", commit.abstainers},
              {"digest", hex(commit.digest)},
              {"exchange_ms", 1000 * commit.seconds},
              {"prepare_ms", 1000 * record.prepare_seconds},
              {"stall_ms", 1000 * record.stall_seconds},
              {"values", record.num_values},
              {"codec", record.codec},
              {"bytes_sent", commit.bytes_sent},
              {"bytes_received", commit.bytes_received}};
  if (!record.layers.empty()) out["layers"] = json_of<json>(record.layers);
  return out.dump();
}

}  // namespace atl::island
