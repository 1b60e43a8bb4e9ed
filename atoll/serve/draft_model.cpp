#include "atoll/serve/draft_model.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/serve/engine.h"

namespace atl::serve {
namespace {

constexpr int64_t kPositions = model::KvPool::kPagePositions;
/// Tokens of a text that are read beside others' newest ones, and those of a pass of its own. Who
/// waits for rows of the chain waits for such a pass.
constexpr int64_t kFew = 8;
constexpr int64_t kChunkTokens = 32;

int64_t num_same(const std::vector<int64_t>& known, std::span<const int64_t> ids) {
  return std::ranges::mismatch(known, ids).in1 - known.begin();
}

}  // namespace

DraftModel::DraftModel(const model::Model& model, int64_t vocab_size, int64_t kv_bytes)
    : model_(model),
      vocab_size_(vocab_size),
      pool_(pool_of(model, kv_bytes)),
      context_(std::min({model.config().context(), model.config().steady_positions(),
                         pool_->num_left() * kPositions})) {
  ATOLL_CHECK(model.config().vocab_size >= vocab_size);
}

bool DraftModel::gives_up(const Text& text) const {
  return std::ssize(text.ids) > context_ || without_room_.contains(text.id);
}

bool DraftModel::lacks(const Text& text) const {
  if (gives_up(text)) return false;
  const auto found = known_.find(text.id);
  return found == known_.end() || num_same(found->second.ids, text.ids) < std::ssize(text.ids);
}

void DraftModel::forget(Id id) {
  if (known_.erase(id) > 0) without_room_.clear();
  without_room_.erase(id);
}

/// What is there of the text as it is now, but its last token: what follows that is wanted.
DraftModel::Known& DraftModel::known(const Text& text) {
  auto found = known_.find(text.id);
  if (found == known_.end()) {
    Known made{.tenant = text.tenant,
               .ids = {},
               .cache = model::KvCache(pool_, prefixes_.find(text.tenant, text.ids))};
    const auto begin = text.ids.first(static_cast<size_t>(made.cache.length()));
    made.ids.assign(begin.begin(), begin.end());
    found = known_.emplace(text.id, std::move(made)).first;
  }
  Known& known = found->second;
  const int64_t same = std::min(num_same(known.ids, text.ids), std::ssize(text.ids) - 1);
  known.ids.resize(static_cast<size_t>(same));
  known.cache.truncate(same);
  return known;
}

bool DraftModel::prepare(Known& known, int64_t count) {
  while (!known.cache.prepare(count)) {
    if (!prefixes_.evict()) return false;
  }
  return true;
}

void DraftModel::purge(uint64_t tenant) {
  prefixes_.purge(tenant);
  for (auto& [id, known] : known_) known.is_private = known.is_private || known.tenant == tenant;
}

void DraftModel::remember(const Known& known, int64_t begin) {
  if (known.is_private) return;
  const int64_t length = known.cache.length();
  if (length / kPositions == begin / kPositions) return;
  prefixes_.add(known.tenant, known.ids,
                std::span(known.cache.pages()).first(static_cast<size_t>(length / kPositions)));
}

std::vector<DraftModel::Read> DraftModel::read(std::span<const Text> texts) {
  std::vector<int64_t> num_unread;
  for (const Text& text : texts) {
    num_unread.push_back(gives_up(text) ? 0 : std::ssize(text.ids) - std::ssize(known(text).ids));
  }
  const bool are_few =
      std::ranges::any_of(num_unread, [](int64_t count) { return count > 0 && count <= kFew; });
  const std::vector<int64_t> counts = plan_pass(num_unread, are_few ? 0 : kChunkTokens, kFew);
  std::vector<int64_t> tokens;
  std::vector<model::CachedRow> rows;
  std::vector<const Text*> parts;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (counts[i] == 0) continue;
    Known& known = known_.at(texts[i].id);
    if (!prepare(known, counts[i])) {
      known_.erase(texts[i].id);
      without_room_.insert(texts[i].id);
      continue;
    }
    const auto unread = texts[i].ids.subspan(known.ids.size(), static_cast<size_t>(counts[i]));
    tokens.insert(tokens.end(), unread.begin(), unread.end());
    known.ids.insert(known.ids.end(), unread.begin(), unread.end());
    rows.push_back({&known.cache, counts[i]});
    parts.push_back(&texts[i]);
  }
  if (rows.empty()) return {};
  const at::Tensor hidden_TC = model_.hidden_1TC(tensor_1T(tokens), rows)[0];
  std::vector<Read> found;
  std::vector<at::Tensor> last_1C;
  int64_t end = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    end += rows[i].num_tokens;
    const Known& known = known_.at(parts[i]->id);
    remember(known, known.cache.length() - rows[i].num_tokens);
    if (known.ids.size() < parts[i]->ids.size()) continue;
    found.push_back({.id = parts[i]->id, .row_V = {}});
    last_1C.push_back(hidden_TC.narrow(0, end - 1, 1));
  }
  if (found.empty()) return {};
  const at::Tensor logits_NV = model_.logits(at::cat(last_1C));
  for (size_t i = 0; i < found.size(); ++i) {
    found[i].row_V = logits_NV[static_cast<int64_t>(i)].narrow(0, 0, vocab_size_);
  }
  return found;
}

}  // namespace atl::serve
