#include "atoll/serve/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

constexpr int64_t kPositions = model::KvPool::kPagePositions;

}  // namespace

std::shared_ptr<model::KvPool> pool_of(const model::Model& model, int64_t bytes) {
  const auto& layers = model.decoder().layers();
  const int64_t page_bytes = model.kv_pool(layers)->page_bytes();
  const int64_t num_pages = bytes / page_bytes;
  if (num_pages > 0) return model.kv_pool(layers, num_pages);
  throw UsageError(
      fmt::format("{} bytes for keys and values hold nothing: a page of {} positions has {}", bytes,
                  kPositions, page_bytes));
}

std::vector<int64_t> plan_pass(std::span<const int64_t> num_unread, int64_t prompt_tokens,
                               int64_t few) {
  std::vector<int64_t> counts;
  for (const int64_t count : num_unread) {
    const int64_t taken = count <= few ? count : std::min(count, prompt_tokens);
    if (count > few) prompt_tokens -= taken;
    counts.push_back(taken);
  }
  return counts;
}

Engine::Engine(const model::Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      pool_(pool_of(model, options.kv_bytes)),
      context_(std::min(model.config().context(), pool_->num_left() * kPositions)),
      prefixes_(1 + options_.adapters.size()) {}

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
  std::erase_if(found_, [&](const Found& found) { return ids.contains(found.id); });
  for (Texts* texts : {&running_, &waiting_}) {
    std::erase_if(*texts, [&](const Text& text) { return ids.contains(text.sequence().id()); });
  }
}

void Engine::purge(uint64_t tenant) {
  for (PrefixCache& prefixes : prefixes_) prefixes.purge(tenant);
  for (Texts* texts : {&running_, &waiting_}) {
    for (Text& text : *texts)
      text.is_private = text.is_private || text.sequence().tenant() == tenant;
  }
  if (rest_ && rest_->tenant == tenant) rest_.reset();
}

void Engine::purge_kept(uint64_t tenant) const {
  if (!options_.kept) return;
  for (const kv::ChunkNames& names : options_.kept->names) {
    options_.kept->desk->purge(names.group_of(tenant));
  }
}

bool Engine::make_room(int64_t num_pages) {
  while (pool_->num_left() < num_pages) {
    if (rest_) {
      rest_.reset();
      continue;
    }
    const bool has_gone =
        std::ranges::any_of(prefixes_, [](PrefixCache& prefixes) { return prefixes.evict(); });
    if (!has_gone) return false;
  }
  return true;
}

/// Longer texts may have other keys for the same tokens.
bool Engine::has_steady_keys(int64_t length) const {
  return length <= model_.config().steady_positions();
}

const model::Adapter* Engine::adapter_of(const Text& text) const {
  const uint64_t number = text.sequence().adapter();
  return number == 0 ? nullptr : options_.adapters.at(number - 1).get();
}

/// One that runs is about to read what this one begins with: once it has, that need not be read.
bool Engine::shares_unread_beginning(const Text& text) const {
  const std::vector<int64_t>& tokens = text.sequence().tokens();
  return std::ranges::any_of(running_, [&](const Text& other) {
    if (other.sequence().tenant() != text.sequence().tenant()) return false;
    if (other.sequence().adapter() != text.sequence().adapter()) return false;
    const int64_t num_shared =
        std::ranges::mismatch(tokens, other.sequence().tokens()).in1 - tokens.begin();
    const int64_t shared_pages = std::min(num_shared, text.length() - 1) / kPositions;
    return shared_pages * kPositions > std::max(text.cache.length(), other.cache.length());
  });
}

/// Keys and values of what it begins with, as far as they are there; but of its last token none.
model::KvCache Engine::beginning_of(const Text& text) {
  const Sequence& sequence = text.sequence();
  const std::vector<int64_t>& tokens = sequence.tokens();
  model::KvCache found(pool_, prefixes_.at(sequence.adapter()).find(sequence.tenant(), tokens));
  const bool is_alike =
      rest_ && rest_->tenant == sequence.tenant() && rest_->adapter == sequence.adapter();
  if (!is_alike) return found;
  const auto same = std::ranges::mismatch(tokens, rest_->tokens).in1 - tokens.begin();
  const int64_t length = std::min<int64_t>(same, std::ssize(tokens) - 1);
  if (length <= found.length()) return found;
  found = rest_->cache.fork();
  found.truncate(length);
  return found;
}

void Engine::admit() {
  for (auto it = waiting_.begin();
       it != waiting_.end() && std::ssize(running_) < options_.max_running;) {
    Text& text = *it;
    if (text.sequence().may_skip() && has_steady_keys(text.length())) {
      text.cache = beginning_of(text);
      if (shares_unread_beginning(text)) {
        text.cache = model::KvCache(pool_);
        ++it;
        continue;
      }
      seek(text);
    }
    if (!make_room(text.cache.num_lacking(text.num_unread())) ||
        !text.cache.prepare(text.num_unread())) {
      text.cache = model::KvCache(pool_);
      return;  // It keeps its turn.
    }
    text.sequence().skipped({.num_tokens = text.cache.length()});
    counts_.cached_tokens += text.cache.length();
    running_.push_back(std::move(text));
    it = waiting_.erase(it);
  }
}

/// What is kept of it, behind what is in memory.
void Engine::seek(Text& text) {
  if (!options_.kept || std::exchange(text.was_sought, true)) return;
  const Sequence& sequence = text.sequence();
  const int64_t most = std::min(sequence.wanted_from(), text.length() - 1) / kv::kChunkTokens;
  const int64_t first = text.cache.length() / kv::kChunkTokens;
  if (most <= first) return;
  const kv::ChunkNames& names = options_.kept->names.at(sequence.adapter());
  const auto tokens =
      std::span(sequence.tokens()).first(static_cast<size_t>(most * kv::kChunkTokens));
  const chain::Span layers{0, static_cast<int32_t>(model_.config().num_layers)};
  const chain::Restore order{.session = {},
                             .layers = layers,
                             .group = names.group_of(sequence.tenant()),
                             .chunks = names.chunks_of(sequence.tenant(), tokens),
                             .holders = {}};
  const auto pages = options_.kept->desk->find(order, layers, static_cast<size_t>(first)).pages;
  if (pages.empty()) return;
  text.cache.truncate(first * kv::kChunkTokens);
  if (make_room(std::ssize(pages))) std::ignore = text.cache.append(pages);
}

/// Chunks that it has filled since it had that length.
void Engine::keep(const Text& text, int64_t begin) const {
  const int64_t end = text.cache.length() / kv::kChunkTokens;
  if (!options_.kept || begin / kv::kChunkTokens >= end) return;
  const Sequence& sequence = text.sequence();
  const kv::ChunkNames& names = options_.kept->names.at(sequence.adapter());
  const auto chunks = names.chunks_of(
      sequence.tenant(),
      std::span(sequence.tokens()).first(static_cast<size_t>(end * kv::kChunkTokens)));
  for (int64_t i = begin / kv::kChunkTokens; i < end; ++i) {
    options_.kept->desk->keep(
        {.group = names.group_of(sequence.tenant()),
         .chunk = chunks[static_cast<size_t>(i)],
         .begin = i * kv::kChunkTokens,
         .layers = {0, static_cast<int32_t>(model_.config().num_layers)},
         .neighbour = {},
         .pages = text.cache.copied_pages(i * kv::kChunkTokens, (i + 1) * kv::kChunkTokens)});
  }
}

void Engine::refuse(Texts& texts, const std::string& reason) {
  for (const Text& text : texts) {
    text.sequence().fail({.kind = decoding::Refusal::Kind::kUnavailable, .message = reason});
  }
  texts.clear();
}

void Engine::end(const std::string& reason) {
  found_.clear();
  refuse(running_, reason);
  refuse(waiting_, reason);
}

}  // namespace atl::serve
