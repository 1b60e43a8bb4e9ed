#include "atoll/coordinator/status.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

using json = nlohmann::ordered_json;  // A person who reads it meets the run before its islands.

constexpr std::array<std::string_view, 4> kRunStates = {"gathering", "training", "stopping",
                                                        "over"};
constexpr std::array<std::string_view, 5> kIslandStates = {"joining", "fetching", "training",
                                                           "away", "left"};

RunStatus read_run(const json& object) {
  for (const char* field : {"run", "state", "islands"}) {
    if (!object.is_object() || !object.contains(field)) {
      throw InputError(fmt::format("it has no '{}'", field));
    }
  }
  RunStatus status;
  read_json(object, status, Lacking::kKeepsValue);
  return status;
}

}  // namespace

std::span<const std::string_view> names_of(RunState) { return kRunStates; }
std::span<const std::string_view> names_of(IslandState) { return kIslandStates; }

std::vector<ServerStatus> server_statuses(const std::vector<chain::Lease>& leases) {
  std::vector<ServerStatus> servers;
  for (const chain::Lease& lease : leases) {
    ServerStatus server{.name = lease.name,
                        .address = lease.address,
                        .model = lease.model,
                        .state = lease.state,
                        .layers = lease.num_layers,
                        .sessions = lease.num_sessions,
                        .free_positions = lease.num_free};
    if (lease.layers.size() > 0) {
      server.first = lease.layers.begin;
      server.last = lease.layers.end - 1;
    }
    if (lease.layers_per_s > 0) server.layers_per_s = lease.layers_per_s;
    servers.push_back(std::move(server));
  }
  return servers;
}

std::string to_json(const RunStatus& status) {
  // An address may hold any bytes: what is no UTF-8 is replaced, not thrown at the reader.
  return json_of<json>(status).dump(-1, ' ', /*ensure_ascii=*/false,
                                    json::error_handler_t::replace);
}

std::string runs_to_json(const std::vector<RunStatus>& runs) {
  if (runs.size() == 1) return to_json(runs[0]);
  std::string list;
  for (const RunStatus& run : runs) list += (list.empty() ? "" : ",") + to_json(run);
  return "{\"runs\":[" + list + "]}";
}

std::vector<RunStatus> runs_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    const bool are_several = object.is_object() && object.contains("runs");
    if (!are_several) return {read_run(object)};
    std::vector<RunStatus> runs;
    for (const json& run : object["runs"]) runs.push_back(read_run(run));
    if (runs.empty()) throw InputError("there is none");
    return runs;
  } catch (const std::exception& error) {
    throw InputError(fmt::format("this is not the status of a run: {}", printable(error.what())));
  }
}

}  // namespace atl::swarm
