#include "atoll/run/round_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;
using collective::CommittedRound;

constexpr std::string_view kMagic = "ATROUND1";
constexpr std::string_view kSuffix = ".round";

void put(ByteWriter& out, const Digest& digest) { out.put_bytes(digest); }

Digest get_digest(ByteReader& in) {
  Digest digest;
  std::ranges::copy(in.get_bytes(digest.size()), digest.begin());
  return digest;
}

Bytes encode(const CommittedRound& round, const Digest& before) {
  ByteWriter out;
  out.put(round.round).put(round.fragment).put(round.step);
  put(out, before);
  put(out, round.digest);
  out.put(static_cast<uint64_t>(round.count)).put(static_cast<uint64_t>(round.segment_values));
  out.put(static_cast<uint32_t>(round.members.size()));
  for (size_t rank = 0; rank < round.members.size(); ++rank) {
    out.put(round.members[rank]).put(round.weights[rank]);
  }
  out.put_bytes(collective::encode(round.result));
  const Bytes body = out.take();
  ByteWriter file;
  file.put_bytes(as_byte_span(kMagic)).put(xxh3(body.data(), body.size())).put_bytes(body);
  return file.take();
}

/// Of a file's bytes; throws InputError.
std::pair<CommittedRound, Digest> decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto magic = in.get_bytes(kMagic.size());
  if (!std::ranges::equal(magic, as_byte_span(kMagic))) {
    throw InputError("it is no round of this version");
  }
  const auto sum = in.get<uint64_t>();
  const auto body = in.get_bytes(in.remaining());
  if (xxh3(body.data(), body.size()) != sum) throw InputError("its checksum is another");
  ByteReader fields(body);
  CommittedRound round{.round = fields.get<int64_t>(),
                       .fragment = fields.get<int32_t>(),
                       .step = fields.get<int64_t>()};
  const Digest before = get_digest(fields);
  round.digest = get_digest(fields);
  round.count = fields.get<uint64_t>();
  round.segment_values = fields.get<uint64_t>();
  const auto num_members = fields.get<uint32_t>();
  for (uint32_t i = 0; i < num_members; ++i) {
    round.members.push_back(fields.get<int32_t>());
    round.weights.push_back(fields.get<int64_t>());
  }
  round.result = collective::decode_result(fields.get_bytes(fields.remaining()));
  return {std::move(round), before};
}

std::pair<CommittedRound, Digest> read(const fs::path& file) {
  const MappedFile mapped(file);
  try {
    return decode(mapped.bytes());
  } catch (const InputError& error) {
    throw InputError(fmt::format("'{}' cannot be read: {}", file.string(), error.what()));
  }
}

bool is_round(const fs::path& file) { return file.extension() == kSuffix; }

/// What a kill has left of one.
bool is_unfinished(const fs::path& file) {
  return file.extension() == ".tmp" && is_round(file.stem());
}

/// By its name; (-1, -1): it has another.
std::pair<int32_t, int64_t> fragment_and_round(const fs::path& file) {
  int64_t step = -1;
  int64_t round = -1;
  int32_t fragment = -1;
  const std::string name = file.filename().string();
  const int num_read =
      std::sscanf(name.c_str(), "step-%" SCNd64 "-round-%" SCNd64 "-%" SCNd32 ".round", &step,
                  &round, &fragment);
  return num_read == 3 ? std::pair(fragment, round) : std::pair(int32_t{-1}, int64_t{-1});
}

}  // namespace

std::vector<LoggedRound> list_rounds(const fs::path& folder) {
  std::vector<LoggedRound> rounds;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (!is_round(entry.path())) continue;
    try {
      const auto [round, before] = read(entry.path());
      rounds.push_back({.file = entry.path(),
                        .round = round.round,
                        .step = round.step,
                        .fragment = round.fragment,
                        .before = before,
                        .after = round.digest});
    } catch (const InputError&) {  // Being written when the power went.
      continue;
    }
  }
  return rounds;
}

CommittedRound read_round(const fs::path& file) { return read(file).first; }

RoundLog::RoundLog(fs::path folder, size_t most_bytes,
                   std::function<void(const std::string&)> on_notice)
    : folder_(std::move(folder)), most_bytes_(most_bytes), on_notice_(std::move(on_notice)) {
  find_earlier();
}

RoundLog::~RoundLog() { worker_.wait(); }

/// What an earlier process has written is in the first checkpoint of this one.
void RoundLog::find_earlier() {
  added_.clear();
  num_bytes_ = 0;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing)) {
    if (is_round(entry.path()) || is_unfinished(entry.path())) added_.push_back(entry.path());
  }
}

void RoundLog::add(std::shared_ptr<const CommittedRound> round, const Digest& before) {
  if (has_failed_) return;
  worker_.wait();
  if (!error_.empty()) {
    has_failed_ = true;
    return on_notice_(fmt::format(
        "rounds cannot be kept on disk ({}); should all islands die, the run goes on from its "
        "newest checkpoint",
        error_));
  }
  const fs::path file = folder_ / fmt::format("step-{:08}-round-{:08}-{}{}", round->step,
                                              round->round, round->fragment, kSuffix);
  added_.push_back(file);
  num_bytes_ += round->result.size_bytes();
  worker_.start([this, file, before, round = std::move(round)] {
    try {
      fs::create_directories(folder_);
      const Bytes bytes = encode(*round, before);
      write_file_atomically(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } catch (const std::exception& error) {
      error_ = error.what();
    }
  });
}

/// The newest of each fragment stay for another checkpoint: who was killed may lack just that.
std::function<void()> RoundLog::checkpoint_begins() {
  worker_.wait();
  num_bytes_ = 0;
  std::map<int32_t, std::pair<int64_t, fs::path>> newest;  // By fragment: round and file.
  for (const fs::path& file : added_) {
    if (!is_round(file)) continue;
    const auto [fragment, round] = fragment_and_round(file);
    const auto [known, is_new] = newest.try_emplace(fragment, round, file);
    if (!is_new && known->second.first < round) known->second = {round, file};
  }
  std::vector<fs::path> kept;
  for (const auto& [fragment, round_and_file] : newest) kept.push_back(round_and_file.second);
  std::erase_if(added_,
                [&](const fs::path& file) { return std::ranges::find(kept, file) != kept.end(); });
  return [included = std::exchange(added_, kept)] { remove_files(included); };
}

void RoundLog::keep_only(const std::vector<LoggedRound>& rounds) {
  worker_.wait();
  std::erase_if(added_, [&](const fs::path& file) {
    return std::ranges::find(rounds, file, &LoggedRound::file) != rounds.end();
  });
  remove_files(added_);
  find_earlier();
}

}  // namespace atl::run
