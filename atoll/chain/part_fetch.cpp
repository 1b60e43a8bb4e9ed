#include "atoll/chain/part_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace atl::chain {
namespace {

std::string name_of(int32_t part, int64_t piece) {
  const std::string whole =
      part == kManifestPart ? "the model's manifest" : fmt::format("layer {}", part);
  return piece == kHashesPiece ? fmt::format("the hashes of {}", whole)
                               : fmt::format("piece {} of {}", piece, whole);
}

}  // namespace

void PartFetch::want_hashes(int32_t part, const Digest& root, size_t num_pieces, Time now) {
  root_ = root;
  num_pieces_ = num_pieces;
  begin(part, {kHashesPiece}, now);
}

void PartFetch::want_pieces(int32_t part, std::vector<Digest> hashes, std::vector<uint32_t> missing,
                            Time now) {
  hashes_ = std::move(hashes);
  begin(part, {missing.begin(), missing.end()}, now);
}

void PartFetch::begin(int32_t part, std::deque<int64_t> open, Time now) {
  part_ = part;
  open_ = std::move(open);
  progressed_ = now;
  is_told_ = false;
  for (auto& [address, server] : servers_) server.lacks_until = {};
  tick(now);
}

size_t PartFetch::num_asked() const {
  size_t sum = 0;
  for (const auto& [address, server] : servers_) sum += server.asked.size();
  return sum;
}

void PartFetch::set_servers(const std::vector<std::string>& addresses, Time now) {
  for (auto& [address, server] : servers_) {
    const bool is_gone = std::ranges::find(addresses, address) == addresses.end();
    if (is_gone && server.state != State::kAway) hang_up(address, now);
  }
  std::erase_if(servers_, [&](const auto& entry) {
    return std::ranges::find(addresses, entry.first) == addresses.end();
  });
  for (const std::string& address : addresses) servers_.try_emplace(address);
  tick(now);
}

void PartFetch::opened(const std::string& address, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end() || found->second.state != State::kCalled) return;
  found->second.state = State::kOpen;
  found->second.heard = now;
  tick(now);
}

std::string PartFetch::fault_of(const Piece& piece) const {
  const std::string name = name_of(piece.part, piece.piece);
  if (piece.piece == kHashesPiece) {
    const size_t count = piece.bytes.size() / sizeof(Digest);
    if (num_pieces_ != 0 && count != num_pieces_) {
      return fmt::format("{} are {}, and there are {}", name, count, num_pieces_);
    }
    return sha256(piece.bytes) == root_ ? "" : fmt::format("{} are not the model's", name);
  }
  const auto index = static_cast<size_t>(piece.piece);
  if (piece.bytes.size() > kTreeChunkBytes) {
    return fmt::format("{} has {} bytes", name, piece.bytes.size());
  }
  return sha256(piece.bytes) == hashes_[index]
             ? ""
             : fmt::format("{} ({} bytes) is not the model's", name, piece.bytes.size());
}

void PartFetch::received(const std::string& address, Piece piece, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end() || found->second.state != State::kOpen) return;
  Server& server = found->second;
  const auto asked = std::ranges::find(server.asked, piece.piece);
  if (asked == server.asked.end() || piece.part != part_ || piece.model != model_) {
    return distrust(address, server, "what it was not asked for", now);
  }
  server.heard = now;
  server.asked.erase(asked);
  if (piece.bytes.empty()) {
    server.lacks_until = now + kLacking;
    open_.push_front(piece.piece);
  } else if (const std::string fault = fault_of(piece); !fault.empty()) {
    open_.push_front(piece.piece);
    return distrust(address, server, fault, now);
  } else {
    server.pause = kFirstPause;
    progressed_ = now;
    is_told_ = false;
    actions_.emplace_back(Keep{std::move(piece)});
  }
  tick(now);
}

void PartFetch::distrust(const std::string& address, Server& server, const std::string& what,
                         Time now) {
  actions_.emplace_back(
      Tell{fmt::format("{} sends what is wrong, others are asked: {}", address, what)});
  hang_up(address, now);
  server.call_at = now + kDistrust;
  tick(now);
}

void PartFetch::put_back(Server& server) {
  open_.insert(open_.begin(), server.asked.begin(), server.asked.end());
  server.asked.clear();
}

void PartFetch::hang_up(const std::string& address, Time now) {
  actions_.emplace_back(HangUp{address});
  lost(address, now);
}

void PartFetch::lost(const std::string& address, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end() || found->second.state == State::kAway) return;
  Server& server = found->second;
  put_back(server);
  server.state = State::kAway;
  server.call_at = now + server.pause;
  server.pause = std::min(2 * server.pause, kLongestPause);
}

void PartFetch::tick(Time now) {
  size_t num_called = 0;
  for (auto& [address, server] : servers_) {
    const bool is_silent = !server.asked.empty() && now - server.heard > kPatience;
    if (is_silent) hang_up(address, now);
    // One that lacks it leaves its place to others.
    num_called += server.state != State::kAway && now >= server.lacks_until ? 1 : 0;
  }
  if (is_done()) return;
  for (auto& [address, server] : servers_) {
    if (num_called >= kMostServers) break;
    if (server.state != State::kAway || now < server.call_at) continue;
    server.state = State::kCalled;
    actions_.emplace_back(Call{address});
    ++num_called;
  }
  for (auto& [address, server] : servers_) {
    while (server.state == State::kOpen && now >= server.lacks_until &&
           server.asked.size() < kMostAsked && !open_.empty()) {
      if (server.asked.empty()) server.heard = now;
      server.asked.push_back(open_.front());
      open_.pop_front();
      actions_.emplace_back(
          Ask{address, {.model = model_, .part = part_, .piece = server.asked.back()}});
    }
  }
  if (num_asked() == 0 && now - progressed_ > kHope && !std::exchange(is_told_, true)) {
    actions_.emplace_back(Tell{
        fmt::format("none of the {} other servers of this model sends {}: waiting until one does",
                    servers_.size(), name_of(part_, open_.front()))});
  }
}

}  // namespace atl::chain
