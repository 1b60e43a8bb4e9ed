#include "atoll/collective/retrieval.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace atl::collective {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr size_t kPiecesAhead = 2;  // Asked of one member, so that its line never runs dry.

}  // namespace

Retrieval::Retrieval(swarm::PartKind kind, int32_t fragment, int64_t round)
    : kind_(kind), fragment_(fragment), round_(round) {}

Retrieval Retrieval::of_state(int32_t fragment, int64_t round, size_t size) {
  Retrieval retrieval(swarm::PartKind::kState, fragment, round);
  retrieval.bytes_.resize(size);
  retrieval.knows_size_ = true;
  for (uint64_t begin = 0; begin < size; begin += kPieceBytes) {
    retrieval.open_.push_back({begin, std::min<uint64_t>(begin + kPieceBytes, size), begin});
  }
  return retrieval;
}

Retrieval Retrieval::of_result(int32_t fragment, int64_t round, size_t most) {
  Retrieval retrieval(swarm::PartKind::kResult, fragment, round);
  retrieval.most_ = most;
  retrieval.open_.push_back({});
  return retrieval;
}

std::optional<swarm::Fetch> Retrieval::request_to(int32_t number, Time now) {
  if (open_.empty() || has_refused(number)) return std::nullopt;
  std::deque<Piece>& asked = asked_[number];
  if (asked.size() >= kPiecesAhead) return std::nullopt;
  const Piece piece = open_.front();
  open_.pop_front();
  if (asked.empty()) heard_[number] = now;
  asked.push_back(piece);
  return swarm::Fetch{.kind = kind_, .fragment = fragment_, .begin = piece.begin, .end = piece.end};
}

Result<void> Retrieval::receive(int32_t number, const swarm::Part& part,
                                std::span<const std::byte> data, Time now) {
  const auto found = asked_.find(number);
  if (found == asked_.end() || found->second.empty()) {
    return failure(fmt::format("it sent bytes of round {} that nobody asked for", round_));
  }
  Piece& piece = found->second.front();
  if (!knows_size_) {
    if (part.total == 0 || part.total > most_) {
      return failure(fmt::format("it has a result of {} bytes of round {}, where {} is the most",
                                 part.total, round_, most_));
    }
    bytes_.resize(part.total);
    piece.end = part.total;
    knows_size_ = true;
  }
  if (kind_ == swarm::PartKind::kResult && piece.end == 0) piece.end = bytes_.size();
  if (part.total != bytes_.size() || part.offset != piece.next || data.empty() ||
      data.size() > piece.end - piece.next) {
    return failure(fmt::format("it sent {} bytes at {} of {} of round {}, where {} to {} are next",
                               data.size(), part.offset, part.total, round_, piece.next,
                               piece.end));
  }
  heard_[number] = now;
  progressed_ = now;
  std::ranges::copy(data, bytes_.begin() + static_cast<ptrdiff_t>(part.offset));
  piece.next += data.size();
  if (piece.next == piece.end) found->second.pop_front();
  return {};
}

void Retrieval::lost(int32_t number) {
  const auto found = asked_.find(number);
  if (found == asked_.end()) return;
  for (Piece piece : found->second) {
    piece.next = piece.begin;
    if (kind_ == swarm::PartKind::kResult) {
      piece = {};
      knows_size_ = false;
    }
    open_.push_front(piece);
  }
  asked_.erase(found);
}

void Retrieval::refused(int32_t number, bool never) {
  lost(number);
  (never ? never_ : refused_).insert(number);
}

std::vector<int32_t> Retrieval::silent_since(Time then) const {
  std::vector<int32_t> silent;
  for (const auto& [number, pieces] : asked_) {
    if (!pieces.empty() && heard_.at(number) < then) silent.push_back(number);
  }
  return silent;
}

bool Retrieval::forgive() {
  const bool any = !refused_.empty();
  refused_.clear();
  return any;
}

bool Retrieval::complete() const {
  return knows_size_ && open_.empty() &&
         std::ranges::all_of(asked_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace atl::collective
