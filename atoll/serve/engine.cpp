#include "atoll/serve/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

constexpr int64_t kPositions = model::KvPool::kPagePositions;
constexpr int64_t kLogitRows = 64;  // At a time: a vocabulary of 200,000 in FP32 is 0.8 MB a row.

int64_t num_pages(const model::KvPool& of_one, int64_t bytes) {
  const int64_t pages = bytes / of_one.page_bytes();
  if (pages > 0) return pages;
  throw UsageError(
      fmt::format("{} bytes for keys and values hold nothing: a page of {} positions has {}", bytes,
                  kPositions, of_one.page_bytes()));
}

at::Tensor tensor_of(std::span<const int64_t> values) {
  const at::Tensor tensor = at::empty({std::ssize(values)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

std::vector<int64_t> plan_pass(std::span<const int64_t> num_unread, int64_t prompt_tokens) {
  std::vector<int64_t> counts;
  for (const int64_t count : num_unread) {
    const int64_t taken = count == 1 ? 1 : std::min(count, prompt_tokens);
    if (count > 1) prompt_tokens -= taken;
    counts.push_back(taken);
  }
  return counts;
}

Engine::Engine(const model::Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      pool_(std::make_shared<model::KvPool>(
          model.config(), model.device(),
          num_pages(model::KvPool(model.config(), model.device()), options.kv_bytes))),
      context_(std::min(model.config().context(), pool_->num_left() * kPositions)) {}

decoding::GeneratorStatus Engine::status() const {
  decoding::GeneratorStatus status = counts_;
  status.num_running = std::ssize(running_);
  status.num_waiting = std::ssize(waiting_);
  status.kv_bytes = pool_->num_taken() * pool_->page_bytes();
  status.kv_capacity_bytes = status.kv_bytes + pool_->num_left() * pool_->page_bytes();
  return status;
}

void Engine::drop(const std::set<Sequence::Id>& ids) {
  if (ids.empty()) return;
  std::erase_if(found_, [&](const Found& found) { return ids.contains(found.sequence->id()); });
  for (Sequences* list : {&running_, &waiting_}) {
    std::erase_if(*list, [&](const auto& sequence) { return ids.contains(sequence->id()); });
  }
}

bool Engine::make_room(int64_t num_pages) {
  while (pool_->num_left() < num_pages) {
    if (!prefixes_.evict()) return false;
  }
  return true;
}

/// Longer texts may have other keys for the same tokens.
bool Engine::has_steady_keys(int64_t length) const {
  return length <= model_.config().steady_positions();
}

/// One that runs is about to read what this one begins with: once it has, that need not be read.
bool Engine::shares_unread_beginning(const Sequence& sequence, int64_t num_cached) const {
  return std::ranges::any_of(running_, [&](const auto& other) {
    const auto same = std::ranges::mismatch(sequence.tokens(), other->tokens()).in1;
    const int64_t num_shared = same - sequence.tokens().begin();
    const int64_t shared_pages =
        std::min(num_shared, std::ssize(sequence.tokens()) - 1) / kPositions;
    return shared_pages * kPositions > std::max(num_cached, other->cache.length());
  });
}

void Engine::admit() {
  for (auto it = waiting_.begin();
       it != waiting_.end() && std::ssize(running_) < options_.max_running;) {
    Sequence& sequence = **it;
    const int64_t length = std::ssize(sequence.tokens());
    if (sequence.may_skip() && has_steady_keys(length)) {
      sequence.cache = model::KvCache(pool_, prefixes_.find(sequence.tokens()));
      if (shares_unread_beginning(sequence, sequence.cache.length())) {
        sequence.cache = model::KvCache(pool_);
        ++it;
        continue;
      }
    }
    if (!make_room(sequence.cache.num_lacking(sequence.num_unread())) ||
        !sequence.cache.prepare(sequence.num_unread())) {
      sequence.cache = model::KvCache(pool_);
      return;  // It keeps its turn.
    }
    sequence.skipped(sequence.cache.length());
    counts_.cached_tokens += sequence.cache.length();
    running_.push_back(std::move(*it));
    it = waiting_.erase(it);
  }
}

std::vector<int64_t> Engine::prepare() {
  while (true) {
    std::vector<int64_t> num_unread;
    for (const auto& sequence : running_) num_unread.push_back(sequence->num_unread());
    std::vector<int64_t> counts = plan_pass(num_unread, options_.prompt_tokens);
    size_t ready = 0;
    for (; ready < running_.size(); ++ready) {
      model::KvCache& cache = running_[ready]->cache;
      if (!make_room(cache.num_lacking(counts[ready])) || !cache.prepare(counts[ready])) break;
    }
    if (ready == running_.size()) return counts;
    // The youngest gives way to the others, and reads its text anew.
    running_.back()->cache = model::KvCache(pool_);
    waiting_.push_front(std::move(running_.back()));
    running_.pop_back();
  }
}

void Engine::read() {
  const at::NoGradGuard no_grad;
  admit();
  for (const auto& sequence : running_) {
    model_.forget_other_keys(sequence->cache, std::ssize(sequence->tokens()));
  }
  const std::vector<int64_t> counts = prepare();
  std::vector<int64_t> tokens;
  std::vector<model::CachedRow> rows;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (counts[i] == 0) continue;
    Sequence& sequence = *running_[i];
    const auto unread =
        std::span(sequence.tokens())
            .subspan(static_cast<size_t>(sequence.cache.length()), static_cast<size_t>(counts[i]));
    Found found{.sequence = &sequence,
                .begin = sequence.cache.length(),
                .places = sequence.wanted(counts[i]),
                .hidden_WC = {}};
    found_.push_back(std::move(found));
    tokens.insert(tokens.end(), unread.begin(), unread.end());
    rows.push_back({&sequence.cache, counts[i]});
    if (counts[i] > 1 || sequence.cache.length() == 0) counts_.prompt_tokens += counts[i];
  }
  if (rows.empty()) return;
  try {
    const at::Tensor hidden_TC =
        model_.hidden_1TC(tensor_of(tokens).unsqueeze(0).to(model_.device()), rows)[0];
    int64_t first = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      found_[i].hidden_WC = hidden_TC.narrow(0, first, rows[i].num_tokens)
                                .index_select(0, tensor_of(found_[i].places).to(model_.device()));
      first += rows[i].num_tokens;
    }
  } catch (const std::exception& error) {
    found_.clear();
    trouble_ = error.what();
  }
}

void Engine::give() {
  if (!trouble_.empty()) refuse_all(std::exchange(trouble_, {}));
  std::set<Sequence::Id> done;
  for (Found& found : std::exchange(found_, {})) {
    Sequence& sequence = *found.sequence;
    // Before it grows: what was read is all that the pages hold.
    const int64_t length = sequence.cache.length();
    const bool has_filled = length / kPositions > found.begin / kPositions;
    if (has_filled && has_steady_keys(std::ssize(sequence.tokens()))) {
      prefixes_.add(
          std::span(sequence.tokens()).first(static_cast<size_t>(length)),
          std::span(sequence.cache.pages()).first(static_cast<size_t>(length / kPositions)));
    }
    const size_t length_before = sequence.tokens().size();
    try {
      if (give(found)) done.insert(sequence.id());
      counts_.made_tokens += static_cast<int64_t>(sequence.tokens().size() - length_before);
    } catch (const InputError& error) {
      sequence.fail({.kind = decoding::Refusal::Kind::kUnavailable, .message = error.what()});
      done.insert(sequence.id());
    }
  }
  drop(done);
}

/// Whether it wants no more.
bool Engine::give(const Found& found) {
  const int64_t count = std::ssize(found.places);
  for (int64_t first = 0; first < count; first += kLogitRows) {
    const int64_t size = std::min(kLogitRows, count - first);
    at::Tensor rows = found.hidden_WC.narrow(0, first, size);
    if (found.sequence->wants_logits()) rows = model_.logits(rows);
    rows = rows.to(at::kCPU).contiguous();
    for (int64_t i = 0; i < size; ++i) {
      const int64_t place = found.places[static_cast<size_t>(first + i)];
      if (found.sequence->take(found.begin + place, rows[i])) return true;
    }
  }
  return false;
}

void Engine::refuse_all(const std::string& reason) {
  for (const auto& sequence : running_) {
    sequence->fail({.kind = decoding::Refusal::Kind::kUnavailable, .message = reason});
  }
  running_.clear();
}

}  // namespace atl::serve
