#include "atoll/coordinator/book.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/swarm/fields.h"

namespace atl::swarm {
namespace {

/// A member that is behind by more commits than these cannot be told of all.
constexpr size_t kMaxHistory = 4096;
constexpr uint8_t kContentsKind = 254;
constexpr uint8_t kContentsWithoutNormsKind = 255;
static_assert(std::variant_size_v<Record> == kCommittedKind, "a kind of its own");

void require(bool ok, const char* what) {
  if (!ok) throw InputError(fmt::format("a journal that contradicts itself: {}", what));
}

}  // namespace

void visit(auto& io, Is<Leases> auto& m) { io(m.num_granted, m.num_consumed, m.rest); }
void visit(auto& io, Is<Counted> auto& m) { io(m.step, m.units); }
void visit(auto& io, Is<TermBegan> auto& m) { io(m.term); }
void visit(auto& io, Is<RunBegan> auto& m) {
  io(m.run, m.start_step, m.num_replicas, m.facts, m.config);
}
void visit(auto& io, Is<Admitted> auto& m) { io(m.peer); }
void visit(auto& io, Is<Removed> auto& m) { io(m.number); }
void visit(auto& io, Is<Granted> auto& m) { io(m.numbers, m.count); }
void visit(auto& io, Is<Committed> auto& m) {
  io(m.index, m.attempt, m.held, m.count, m.segment_values, m.members, m.weights, m.num_trained);
}
void visit(auto& io, Is<Left> auto& m) { io(m.number); }
void visit(auto& io, Is<Outliers::Contributed> auto& m) { io(m.number, m.norm, m.weight); }

Book::Grants Book::apply(const Record& record) {
  return std::visit([&](const auto& kind) { return take(kind); }, record);
}

Book::Grants Book::take(const TermBegan& record) {
  require(record.term > term_, "a term that does not rise");
  term_ = record.term;
  return {};
}

Book::Grants Book::take(const RunBegan& record) {
  require(!record.run.empty() && (run_.empty() || run_ == record.run), "another run");
  require(record.num_replicas > 0 && record.start_step >= 0, "a run of nobody");
  run_ = record.run;
  first_term_ = term_;
  void_commits_after(record.start_step, record.num_replicas);
  start_step_ = last_step_ = record.start_step;
  num_replicas_ = record.num_replicas;
  facts_ = record.facts;
  config_ = record.config;
  members_.clear();
  left_.clear();
  held_.clear();
  history_.clear();
  norms_.clear();
  last_round_ = -1;
  return {};
}

/// Rows that no commit up to there has consumed are free again. Behind the last commit a checkpoint
/// holds what was learned from the rows up to its step.
void Book::void_commits_after(int64_t step, int64_t num_replicas) {
  if (num_replicas != num_replicas_ || step < forgotten_step_) {
    leases_ = LeaseBook(step * num_replicas);  // As if all had been given out in turn.
    counted_.clear();
    forgotten_step_ = step;
    return;
  }
  for (const Counted& counted : counted_) {
    if (counted.step > step) leases_.give_back(counted.units);
  }
  std::erase_if(counted_, [&](const Counted& counted) { return counted.step > step; });
  const bool is_of_commit = std::ranges::find(counted_, step, &Counted::step) != counted_.end();
  leases_.revoke_all(is_of_commit ? 0 : step * num_replicas);
}

Book::Grants Book::take(const Admitted& record) {
  const auto known = members_.find(record.peer.number);
  if (known != members_.end() && known->second.name == record.peer.name) {
    known->second = record.peer;
    return {};
  }
  require(record.peer.number == next_number_, "a number out of turn");
  members_[next_number_++] = record.peer;
  return {};
}

Book::Grants Book::take(const Removed& record) {
  require(members_.erase(record.number) > 0, "a member that is none");
  left_.erase(record.number);
  leases_.revoke(record.number);
  return {};
}

Book::Grants Book::take(const Left& record) {
  require(members_.contains(record.number), "a member that is none");
  require(left_.insert(record.number).second, "a member that left twice");
  leases_.revoke(record.number);
  return {};
}

Book::Grants Book::take(const Granted& record) {
  require(record.count > 0 && !record.numbers.empty(), "a grant to nobody");
  require(
      std::ranges::adjacent_find(record.numbers, std::greater_equal<>()) == record.numbers.end(),
      "a grant to one member twice");
  for (const int32_t number : record.numbers) {
    require(members_.contains(number), "a stranger's grant");
  }
  auto units = leases_.grant(record.numbers, record.count);
  Grants grants;
  for (size_t i = 0; i < units.size(); ++i) grants[record.numbers[i]] = std::move(units[i]);
  return grants;
}

Book::Grants Book::take(const Committed& record) {
  require(record.index == num_commits_, "a commit out of turn");
  const size_t size = record.members.size();
  require(record.weights.size() == size && record.num_trained.size() == size, "a commit's lists");
  const auto held = held_.find(record.held.fragment);
  require(held == held_.end() || held->second.round < record.held.round, "a round twice");
  require(record.norms.empty() || record.norms.size() == size, "a commit's norms");
  Counted counted{.step = record.held.step};
  for (size_t i = 0; i < size; ++i) {
    const int32_t number = record.members[i];
    if (record.weights[i] == 0 || !members_.contains(number)) continue;
    require(leases_.is_possible(number, record.num_trained[i]), "rows that were not leased");
    for (const Units& units : leases_.consume(number, record.num_trained[i])) {
      counted.units.push_back(units);
    }
  }
  counted_.push_back(std::move(counted));
  if (counted_.size() > kMaxHistory) {
    forgotten_step_ = std::max(forgotten_step_, counted_.front().step);
    counted_.pop_front();
  }
  if (record.held.fragment != kNoFragment) held_[record.held.fragment] = record.held;
  last_round_ = std::max(last_round_, record.held.round);
  last_step_ = std::max(last_step_, record.held.step);
  num_commits_ += 1;
  history_.push_back(record);
  history_.back().norms = {};
  if (history_.size() > kMaxHistory) history_.pop_front();
  remember_norms(record);
  return {};
}

void Book::remember_norms(const Committed& record) {
  if (record.held.fragment == kNoFragment) return;
  for (size_t i = 0; i < record.norms.size(); ++i) {
    require(record.norms[i] >= 0, "a norm that is none");
    if (record.weights[i] == 0) continue;
    Outliers::remember(norms_[record.held.fragment],
                       {record.members[i], record.norms[i], record.weights[i]});
  }
}

const Outliers::Norms& Book::norms(int32_t fragment) const {
  static const Outliers::Norms kNone;
  const auto found = norms_.find(fragment);
  return found == norms_.end() ? kNone : found->second;
}

Bytes Book::contents() const {
  ByteWriter out;
  out.put(kContentsKind);
  FieldWriter writer(out);
  visit(writer, *this);
  writer(norms_);
  return out.take();
}

Bytes encode(const Record& record) {
  ByteWriter out;
  const auto* const committed = std::get_if<Committed>(&record);
  out.put(committed != nullptr ? kCommittedKind : static_cast<uint8_t>(record.index()));
  FieldWriter writer(out);
  std::visit([&](const auto& kind) { visit(writer, kind); }, record);
  if (committed != nullptr) writer(committed->norms);
  return out.take();
}

namespace {

template <size_t... kIndexes>
Record empty_record(size_t kind, std::index_sequence<kIndexes...> /*indexes*/) {
  Record record;
  ((kind == kIndexes ? void(record.emplace<kIndexes>()) : void()), ...);
  return record;
}

}  // namespace

Book read_book(std::span<const Bytes> journal) {
  Book book;
  for (const Bytes& entry : journal) {
    ByteReader in(entry);
    FieldReader reader(in);
    const auto kind = in.get<uint8_t>();
    if (kind == kContentsKind || kind == kContentsWithoutNormsKind) {
      book = {};
      visit(reader, book);
      if (kind == kContentsKind) reader(book.norms_);
      in.expect_end();
      continue;
    }
    require(kind <= kCommittedKind, "an entry of unknown kind");
    Record record =
        kind == kCommittedKind
            ? Committed{}
            : empty_record(kind, std::make_index_sequence<std::variant_size_v<Record>>());
    std::visit([&](auto& fields) { visit(reader, fields); }, record);
    if (kind == kCommittedKind) reader(std::get<Committed>(record).norms);
    in.expect_end();
    book.apply(record);
  }
  return book;
}

}  // namespace atl::swarm
