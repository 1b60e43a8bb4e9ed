#include "atoll/run/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/codec/codec.h"
#include "atoll/method/method.h"
#include "atoll/method/topology.h"
#include "atoll/swarm/rules.h"

namespace atl::run {

namespace fs = std::filesystem;

namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{1} << 30;
constexpr size_t kMaxMembers = 1024;
/// Ways between members, of all rounds: a simulation looks at each. Of longer runs the end is read.
constexpr size_t kMaxWays = size_t{1} << 18;

/// Reads each whole line; `check` then says what is wrong with it, if anything is.
template <typename Line>
std::vector<Line> parse_lines(std::string_view text, const std::string& file, const auto& check) {
  std::vector<Line> lines;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string where = fmt::format("'{}', line {}", file, lines.size() + 1);
    try {
      lines.push_back(struct_in<Line>(text.substr(0, end), where));
    } catch (const InputError& error) {
      throw InputError(
          fmt::format("{}; is it a run of another program, or of an older atoll?", error.what()));
    }
    const char* const wrong = check(lines.back());
    if (wrong != nullptr) throw InputError(fmt::format("{}: {}", where, wrong));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string read_records(const fs::path& file) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (!error && size > kMaxFileBytes) {
    throw InputError(fmt::format("'{}' has {}; records over {} are not read", file.string(),
                                 format_bytes(static_cast<double>(size)),
                                 format_bytes(static_cast<double>(kMaxFileBytes))));
  }
  return read_file(file);
}

IslandRecord read_island(const fs::path& folder) {
  IslandRecord island{.where = folder.string()};
  const fs::path name = folder / "name";
  island.name = fs::exists(name) ? read_records(name) : folder.filename().string();
  if (!swarm::is_valid_name(island.name)) {
    throw InputError(
        fmt::format("'{}' names no island (the file `name`, or else the folder)", folder.string()));
  }
  const fs::path steps = folder / "metrics.jsonl";
  island.steps = parse_steps(read_records(steps), steps.string());
  const fs::path rounds = folder / "rounds.jsonl";
  island.rounds = parse_rounds(read_records(rounds), rounds.string());
  return island;
}

/// Folders with records: that of one island, or those of a run.
std::vector<fs::path> island_folders(const fs::path& folder) {
  if (fs::exists(folder / "metrics.jsonl")) return {folder};
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool is_island = entry.path().filename().string().starts_with("island-");
    if (is_island && fs::exists(entry.path() / "metrics.jsonl")) found.push_back(entry.path());
  }
  if (error) {
    throw InputError(
        fmt::format("--from: '{}' cannot be read: {}", folder.string(), error.message()));
  }
  if (found.empty()) {
    throw InputError(
        fmt::format("--from: '{}' is no run with records: neither it nor an island-* in it has a "
                    "metrics.jsonl",
                    folder.string()));
  }
  std::ranges::sort(found);
  return found;
}

laws::IslandTime sum(const laws::IslandTime& a, const SecondsSpent& b) {
  return {.computing_s = a.computing_s + b.computing,
          .handling_s = a.handling_s + b.handling,
          .waiting_s = a.waiting_s + b.waiting,
          .pausing_s = a.pausing_s + b.validation + b.checkpoints};
}

bool falls(const SecondsSpent& now, const SecondsSpent& before) {
  return now.computing < before.computing || now.handling < before.handling ||
         now.waiting < before.waiting || now.validation < before.validation ||
         now.checkpoints < before.checkpoints;
}

/// A process that was resumed counts from 0 again. Steps that no line tells of take no time.
std::vector<laws::Mark> marks_of(const IslandRecord& island) {
  std::vector<laws::Mark> marks;
  laws::IslandTime before;  // Of the processes before.
  const StepLine* last = nullptr;
  for (const StepLine& line : island.steps) {
    const bool is_new = last == nullptr || line.began_at != last->began_at;
    if (line.step <= (is_new ? line.began_at : last->step) ||
        (!marks.empty() && line.step <= marks.back().step)) {
      throw InputError(fmt::format("'{}/metrics.jsonl': step {} does not follow what is before it",
                                   island.where, line.step));
    }
    if (!is_new && falls(line.seconds, last->seconds)) {
      throw InputError(
          fmt::format("'{}/metrics.jsonl': the seconds of step {} are less than those before it",
                      island.where, line.step));
    }
    if (is_new && last != nullptr) before = marks.back().spent;
    if (is_new && (marks.empty() || marks.back().step < line.began_at)) {
      marks.push_back({.step = line.began_at, .spent = before});
    }
    marks.push_back({.step = line.step, .spent = sum(before, line.seconds)});
    last = &line;
  }
  return marks;
}

/// By what all islands know a round by.
using RoundKey = std::tuple<int64_t, int64_t, int64_t>;  // Sent, number, fragment.
RoundKey key_of(const RoundLine& line) { return {line.sent, line.round, line.fragment}; }

std::string alone(const std::string& where) {
  return fmt::format("'{}' is a run of one island: it sends nothing that could be simulated",
                     where);
}

std::map<std::string, const IslandRecord*> by_name(const std::vector<IslandRecord>& islands) {
  std::map<std::string, const IslandRecord*> out;
  for (const IslandRecord& island : islands) {
    if (island.steps.empty()) {
      throw InputError(
          fmt::format("'{}': metrics.jsonl has no whole line yet (train.log_every)", island.where));
    }
    if (island.rounds.empty()) {
      throw InputError(fmt::format("'{}': rounds.jsonl has no whole line: there was no round yet",
                                   island.where));
    }
    if (!out.emplace(island.name, &island).second) {
      throw InputError(
          fmt::format("'{}' has the name of another island, '{}'", island.where, island.name));
    }
  }
  return out;
}

std::set<std::string> members_of(const std::vector<IslandRecord>& islands) {
  std::set<std::string> names;
  for (const IslandRecord& island : islands) {
    names.insert(island.name);
    for (const RoundLine& line : island.rounds) {
      names.insert(line.members.begin(), line.members.end());
    }
  }
  return names;
}

/// What the first island said of a round, which the others must say too.
using RoundLines = std::map<RoundKey, const RoundLine*>;

void require_agreement(const IslandRecord& island, const RoundLine& line, RoundLines& first) {
  const RoundLine& other = *first.try_emplace(key_of(line), &line).first->second;
  if (other.members == line.members && other.values == line.values && other.codec == line.codec) {
    return;
  }
  throw InputError(
      fmt::format("'{}/rounds.jsonl', round {}: its members, values or codec are others than "
                  "another island says",
                  island.where, line.round));
}

void add_rounds(const IslandRecord& island, size_t place, const method::SyncOptions& options,
                RoundLines& first, std::map<RoundKey, laws::RecordedRound>& rounds) {
  std::set<RoundKey> seen;
  for (const RoundLine& line : island.rounds) {
    require_agreement(island, line, first);
    if (line.members.size() < 2 || !seen.insert(key_of(line)).second) continue;
    const auto [found, is_new] = rounds.try_emplace(key_of(line));
    laws::RecordedRound& round = found->second;
    if (is_new) {
      round.sent_after = line.sent;
      round.gathers = gathers(island, line, options);
    }
    round.parts.push_back({.island = place,
                           .used_after = line.step,
                           .sent_bytes = line.bytes_sent,
                           .received_bytes = line.bytes_received,
                           .prepare_s = line.prepare_ms / 1000,
                           .exchange_s = line.exchange_ms / 1000});
  }
}

/// Of longer runs the last steps count.
void cut(laws::RecordedRun& run) {
  const size_t num_ways = run.islands.size() * run.islands.size();
  const size_t most = std::max<size_t>(1, kMaxWays / num_ways);
  if (run.rounds.size() <= most) return;
  const int64_t first = run.rounds[run.rounds.size() - most - 1].sent_after;
  for (laws::RecordedIsland& island : run.islands) {
    const auto kept = std::ranges::upper_bound(island.marks, first, {}, &laws::Mark::step);
    const auto begin = kept == island.marks.begin() ? kept : kept - 1;
    if (island.marks.end() - begin >= 2) island.marks.erase(island.marks.begin(), begin);
  }
  const auto is_before = [&](const laws::RecordedRound& round) {
    return round.sent_after <= run.first_step();
  };
  std::erase_if(run.rounds, is_before);
}

}  // namespace

bool gathers(const IslandRecord& island, const RoundLine& line,
             const method::SyncOptions& options) {
  try {
    const auto num_members = static_cast<int>(line.members.size());
    return method::topology_of(options, *codec::make_codec(line.codec), num_members) ==
           collective::Topology::kGather;
  } catch (const UsageError& error) {
    throw InputError(
        fmt::format("{}/rounds.jsonl, round {}: {}", island.where, line.round, error.what()));
  }
}

std::vector<StepLine> parse_steps(std::string_view text, const std::string& file) {
  return parse_lines<StepLine>(text, file, [](const StepLine&) { return nullptr; });
}

std::vector<RoundLine> parse_rounds(std::string_view text, const std::string& file) {
  return parse_lines<RoundLine>(text, file, [](const RoundLine& line) -> const char* {
    if (line.sent > line.step) return "sent comes after step";
    if (line.values == 0) return "values must be above 0";
    if (line.members.empty()) return "members is empty";
    const bool are_names = std::ranges::all_of(line.members, swarm::is_valid_name);
    if (!are_names) return "members is no list of islands' names";
    return line.members.size() > kMaxMembers ? "members are more than 1024" : nullptr;
  });
}

laws::RecordedRun recorded_run(const std::vector<IslandRecord>& islands,
                               const method::SyncOptions& options) {
  const std::string& where = islands.front().where;
  const std::map<std::string, const IslandRecord*> known = by_name(islands);
  const std::set<std::string> members = members_of(islands);
  if (members.size() < 2) throw InputError(alone(where));
  if (members.size() > kMaxMembers) {
    throw InputError(fmt::format("'{}' names more than {} members", where, kMaxMembers));
  }
  laws::RecordedRun run;
  std::map<RoundKey, laws::RecordedRound> rounds;
  RoundLines first;
  for (const std::string& name : members) {
    const auto found = known.find(name);
    const IslandRecord& source = found == known.end() ? islands.front() : *found->second;
    add_rounds(source, run.islands.size(), options, first, rounds);
    run.islands.push_back({.name = name, .marks = marks_of(source)});
  }
  double bytes = 0;
  for (auto& [key, round] : rounds) {
    for (const laws::RecordedPart& part : round.parts) bytes += part.sent_bytes;
    run.rounds.push_back(std::move(round));
  }
  if (!rounds.empty() && bytes == 0) {
    throw InputError(fmt::format("'{}': no round of it sent a byte", where));
  }
  cut(run);
  if (run.first_step() >= run.last_step()) {
    throw InputError(fmt::format("'{}': there is no step that all islands have taken", where));
  }
  const bool has_round = std::ranges::any_of(run.rounds, [&](const laws::RecordedRound& round) {
    return round.parts.size() >= 2 && round.sent_after > run.first_step() &&
           round.sent_after <= run.last_step();
  });
  if (has_round) return run;
  throw InputError(fmt::format("'{}': there is no round that two islands had a part in", where));
}

RunRecord read_run_record(const fs::path& folder) {
  const std::vector<fs::path> islands = island_folders(folder);
  const fs::path config = islands.front() / "config.toml";
  if (!fs::exists(config)) {
    throw InputError(fmt::format("'{}' has no config.toml", islands.front().string()));
  }
  RunRecord record{.config = load_config(config, {})};
  const method::Method& method = method::method_of(record.config.sync);
  if (method.is_for_one) {
    throw InputError(alone(folder.string()));
  }
  if (record.config.swarm.is_elastic()) {
    throw InputError(fmt::format(
        "'{}' is a run in elastic pace: there nobody waits for an exchange, so there is "
        "nothing to simulate",
        folder.string()));
  }
  for (const fs::path& island : islands) record.islands.push_back(read_island(island));
  record.run = recorded_run(record.islands, record.config.sync);
  return record;
}

}  // namespace atl::run
