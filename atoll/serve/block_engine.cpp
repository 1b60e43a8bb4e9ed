#include "atoll/serve/block_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/chain/rows.h"
#include "atoll/serve/engine.h"

namespace atl::serve {
namespace {

using chain::Fault;

/// A text whose guesses are verified is not held up by others that are read.
constexpr int64_t kFew = 32;
constexpr int64_t kPositions = model::KvPool::kPagePositions;
constexpr int64_t kDrawn = 64;
constexpr Duration kAskAgain = std::chrono::seconds(20);  // For an adapter that has not come.
constexpr int64_t kPassBytes = int64_t{1} << 20;          // Of orders: they go on in one message.

chain::SessionId adapter_of(const chain::ServerSession& session) {
  return {.gateway = session.id().gateway, .number = session.adapter()};
}

}  // namespace

BlockEngine::BlockEngine(const model::Model& model, const BlockEngineOptions& options)
    : model_(model),
      options_(options),
      pool_(pool_of(model, options.kv_bytes)),
      context_(pool_->num_left() * kPositions),
      pass_rows_(std::min(chain::most_rows(chain::Precision::kFp32, model.config().hidden_size),
                          options.prompt_tokens)) {}

int64_t BlockEngine::num_sessions() const {
  return std::ranges::count_if(texts_, [](const Text& text) { return !text.session.rests(); });
}

int64_t BlockEngine::num_free() const {
  std::map<const at::Tensor*, int64_t> resting;  // Pages, and how many resting texts have each.
  int64_t pages = pool_->num_left();
  for (const Text& text : texts_) {
    if (!text.session.rests()) continue;
    for (const model::KvPage& page : text.cache.pages()) {
      if (++resting[page.get()] == page.use_count()) ++pages;
    }
  }
  return pages * kPositions;
}

int64_t BlockEngine::num_positions() const {
  return (pool_->num_left() + pool_->num_taken()) * kPositions;
}

/// Whether it is here, and a model's layers begin or end there.
bool BlockEngine::has_head_at(int32_t layer) const {
  return options_.has_head && (layer == 0 || layer == model_.config().num_layers);
}

BlockEngine::Texts::iterator BlockEngine::find(const chain::SessionId& id) {
  return std::ranges::find_if(texts_, [&](const Text& text) { return text.session.id() == id; });
}

void BlockEngine::complain(const chain::ServerSession& session, Fault fault, std::string reason) {
  sent_.emplace_back(chain::Trouble{.session = session.id(),
                                    .epoch = session.epoch(),
                                    .fault = fault,
                                    .reason = std::move(reason)});
}

BlockEngine::Texts::iterator BlockEngine::end(Texts::iterator text, Fault fault,
                                              std::string reason) {
  complain(text->session, fault, std::move(reason));
  return texts_.erase(text);
}

void BlockEngine::hear(chain::Message message, Time now) {
  if (auto* rows = std::get_if<chain::Work>(&message)) {
    work(std::move(*rows), now);
  } else if (const auto* change = std::get_if<chain::Reroute>(&message)) {
    reroute(*change, now);
  } else if (const auto* forget = std::get_if<chain::Forget>(&message)) {
    forgotten_.add(*forget);
    const auto text = find(forget->session);
    if (text != texts_.end() && text->session.epoch() <= forget->epoch) texts_.erase(text);
  } else if (const auto* rest = std::get_if<chain::Rest>(&message)) {
    const auto text = find(rest->session);
    if (text == texts_.end()) return;
    text->session.rest();
    text->adapter.reset();  // Nothing more is read of it.
    // Those that rest go in the order of their last use.
    texts_.splice(texts_.end(), texts_, text);
    if (std::ssize(texts_) - num_sessions() > options_.max_resting) end_rest();
  } else if (const auto* kept = std::get_if<chain::Keep>(&message)) {
    keep(*kept);
  } else if (const auto* question = std::get_if<chain::Testify>(&message)) {
    const auto text = find(question->session);
    sent_.emplace_back(text != texts_.end() ? text->session.testify(*question)
                                            : chain::Testimony{.session = question->session,
                                                               .audit = question->audit,
                                                               .received = {},
                                                               .made = {}});
  }
}

/// Chunks that were read, as they are now: what comes later does not change them.
void BlockEngine::keep(const chain::Keep& message) {
  const auto text = find(message.session);
  if (text == texts_.end() || text->session.layers().size() <= 0) return;
  int64_t waiting = 0;  // Until take_kept().
  for (const KeptPages& each : kept_) waiting += std::ssize(each.pages) * pool_->page_bytes();
  for (size_t i = 0; i < message.chunks.size(); ++i) {
    const int64_t begin = (message.first + static_cast<int64_t>(i)) * kv::kChunkTokens;
    const int64_t end = begin + kv::kChunkTokens;
    if (end > std::min(text->session.length(), text->cache.length())) return;
    waiting += kv::kChunkTokens / kPositions * pool_->page_bytes();
    if (waiting > options_.kept_bytes) return;
    kept_.push_back({.group = message.group,
                     .chunk = message.chunks[i],
                     .begin = begin,
                     .first_layer = static_cast<int32_t>(text->cache.first_layer()),
                     .layers = text->session.layers(),
                     .neighbour = message.neighbour,
                     .pages = text->cache.copied_pages(begin, end)});
  }
}

void BlockEngine::restore(const chain::Restore& order, chain::Span pages_layers,
                          const FoundChunks& found, Time now) {
  if (forgotten_.has(order.session, order.epoch)) return;
  chain::Restored answer{.session = order.session, .epoch = order.epoch};
  model::KvCache cache(pool_);
  const model::LayerRange& own = model_.decoder().layers();  // May be others than they were.
  const bool is_right = own.begin == pages_layers.begin && own.end == pages_layers.end &&
                        num_sessions() < options_.max_sessions &&
                        find(order.session) == texts_.end();
  if (!found.pages.empty() && is_right && cache.append(found.pages)) {
    answer.end = cache.length();
    answer.levels = found.levels;
    texts_.push_back({.session = chain::ServerSession(order.session, order.layers, cache.length()),
                      .cache = std::move(cache),
                      .heard = now});
  }
  sent_.emplace_back(answer);
}

std::optional<std::pair<Fault, std::string>> BlockEngine::objection_to(
    const chain::Work& work) const {
  const auto& own = model_.decoder().layers();
  const chain::Span layers = work.hops.front().layers;
  if (layers.begin < own.begin || layers.end > own.end) {
    return std::pair(Fault::kNotKept,
                     fmt::format("layers {} to {} are asked for, and {} to {} are here",
                                 layers.begin, layers.end - 1, own.begin, own.end - 1));
  }
  if (work.adapter != 0 && options_.adapters == nullptr) {
    return std::pair(Fault::kNotKept, "texts are read without adapters here");
  }
  const chain::Rows& rows = work.rows;
  const bool embeds = !rows.ids.empty();
  const bool draws = !rows.orders.empty() && work.hops.size() == 1;
  if ((embeds && !has_head_at(layers.begin)) || (draws && !has_head_at(layers.end))) {
    return std::pair(Fault::kNotKept, "the embedding and the head are not here");
  }
  try {
    for (const int32_t id : rows.ids) model_.check_ids(std::array{int64_t{id}});
    for (const auto& order : rows.orders) decoding::check(order, model_.config().vocab_size);
  } catch (const InputError& error) {
    return std::pair(Fault::kDamaged, error.what());
  }
  const size_t row = chain::row_bytes(rows.precision, model_.config().hidden_size);
  if (!embeds && rows.rows_TC.size() != rows.num_tokens * row) {
    return std::pair(Fault::kDamaged, "rows of another model");
  }
  const int64_t end = rows.end();
  if (end > model_.config().context() || end > model_.config().steady_positions()) {
    return std::pair(Fault::kDamaged, "rows beyond the context");
  }
  if (end > context_) {
    return std::pair(Fault::kNoMemory,
                     fmt::format("there are {} positions for keys and values", context_));
  }
  return std::nullopt;
}

/// A new session; where it shares its beginning with another that is here, without reading that.
BlockEngine::Texts::iterator BlockEngine::open(const chain::Work& work, Time now) {
  Text text{
      .session = chain::ServerSession(work.session), .cache = model::KvCache(pool_), .heard = now};
  const auto other = find({.gateway = work.session.gateway, .number = work.shares_with});
  const bool shares = work.num_shared > 0 && work.rows.begin == work.num_shared &&
                      other != texts_.end() && other->cache.length() >= work.num_shared &&
                      other->session.length() >= work.num_shared &&
                      other->session.layers() == work.hops.front().layers &&
                      other->session.adapter() == work.adapter;
  if (shares) {
    text.session = chain::ServerSession(work.session, other->session, work.num_shared);
    text.cache = other->cache.fork();
    text.cache.truncate(work.num_shared);
    if (other->session.rests()) texts_.splice(texts_.end(), texts_, other);
  } else if (work.rows.begin == 0 && work.shares_with < work.session.number) {
    text.begins_as = work.shares_with;
    text.num_shared = work.num_shared;
  }
  texts_.push_back(std::move(text));
  return std::prev(texts_.end());
}

void BlockEngine::work(chain::Work message, Time now) {
  if (forgotten_.has(message.session, message.epoch)) return;
  chain::Trouble trouble{
      .session = message.session, .epoch = message.epoch, .fault = {}, .reason = {}};
  auto text = find(message.session);
  if (text != texts_.end() && text->session.rests()) return;
  auto objection = objection_to(message);
  if (text == texts_.end() && num_sessions() >= options_.max_sessions) {
    objection = {Fault::kNoMemory, fmt::format("{} sessions are here", num_sessions())};
  }
  if (!objection) {
    if (text == texts_.end()) text = open(message, now);
    text->heard = now;
    const auto taken = text->session.take(std::move(message));
    for (chain::Message& each : text->session.take_again()) sent_.push_back(std::move(each));
    int64_t unread = 0;
    for (const Text& each : texts_) unread += each.session.unread_bytes();
    if (taken == chain::ServerSession::Taken::kGap) {
      objection = {Fault::kNotKept, "rows before these are missing"};
    } else if (taken == chain::ServerSession::Taken::kOther) {
      objection = {Fault::kDamaged, "rows in another precision than before"};
    } else if (unread > options_.unread_bytes) {
      objection = {Fault::kNoMemory, "too many rows wait to be read"};
    }
  }
  if (!objection) return;
  std::tie(trouble.fault, trouble.reason) = *std::move(objection);
  sent_.emplace_back(std::move(trouble));
  if (text != texts_.end()) texts_.erase(text);
}

void BlockEngine::reroute(const chain::Reroute& message, Time now) {
  const auto text = find(message.session);
  if (text != texts_.end()) {
    text->heard = now;
    if (auto again = text->session.reroute(message)) {
      for (chain::Message& each : *again) sent_.push_back(std::move(each));
      return;
    }
  }
  sent_.emplace_back(chain::Trouble{.session = message.session,
                                    .epoch = message.epoch,
                                    .fault = Fault::kNotKept,
                                    .reason = "what was sent on is not there any more"});
}

void BlockEngine::forget_gateway(uint64_t gateway) {
  std::erase_if(texts_, [&](const Text& text) { return text.session.id().gateway == gateway; });
  std::erase_if(asked_, [&](const auto& entry) { return entry.first.first.gateway == gateway; });
}

void BlockEngine::lose_neighbour(const std::string& address) {
  for (const Text& text : texts_) {
    if (text.session.next() != address) continue;
    complain(text.session, Fault::kNeighbour, fmt::format("{} cannot be reached", address));
  }
}

void BlockEngine::leave(const std::string& reason) {
  for (const Text& text : texts_) complain(text.session, Fault::kLeaving, reason);
}

bool BlockEngine::is_idle() const {
  return std::ranges::all_of(texts_, [&](const Text& text) {
    return text.session.num_unread() == 0 || lacks_adapter(text);
  });
}

/// Nor is it on the shelf: its gateway was asked for it.
bool BlockEngine::lacks_adapter(const Text& text) const {
  const chain::ServerSession& session = text.session;
  return session.adapter() != 0 && text.adapter == nullptr &&
         asked_.contains({adapter_of(session), session.layers()}) &&
         !options_.adapters->has(adapter_of(session), session.layers(), chain::kAdapterVersion);
}

/// Its gateway is asked for it once, for all texts; one that is here stays with the text.
bool BlockEngine::waits_for_adapter(Text& text, Time now) {
  const chain::ServerSession& session = text.session;
  const chain::Span layers = session.layers();
  if (session.adapter() == 0 || session.num_unread() == 0) return false;
  const bool is_here = text.adapter != nullptr && text.adapter->layers().begin == layers.begin &&
                       text.adapter->layers().end == layers.end;
  if (is_here) return false;
  const chain::SessionId id = adapter_of(session);
  text.adapter = options_.adapters->find(id, layers, chain::kAdapterVersion);
  if (text.adapter != nullptr) {
    asked_.erase({id, layers});
    return false;
  }
  if (asked_.try_emplace({id, layers}, now).second) {
    sent_.emplace_back(chain::Unadapted{.adapter = id, .layers = layers});
  }
  return true;
}

/// Of the texts that rest the one used longest ago is not kept any more. False: none rests.
bool BlockEngine::end_rest() {
  const auto oldest =
      std::ranges::find_if(texts_, [](const Text& text) { return text.session.rests(); });
  if (oldest == texts_.end()) return false;
  end(oldest, Fault::kNotKept, "there is no room for texts that are over");
  return true;
}

/// Whether another text is about to read what this one goes on with; once that has, this one has as
/// well. So of several texts with one prompt, all of which come from a server that
/// is gone, the prompt is read once.
bool BlockEngine::waits_for_beginning(Text& text) {
  chain::ServerSession& session = text.session;
  if (text.num_shared == 0 || session.num_unread() == 0) return false;
  const auto other = find({.gateway = session.id().gateway, .number = text.begins_as});
  const bool is_there = other != texts_.end() && session.length() < text.num_shared &&
                        other->session.layers() == session.layers() &&
                        other->session.adapter() == session.adapter() &&
                        other->session.precision() == session.precision();
  if (!is_there) {
    text.num_shared = 0;
    return false;
  }
  // Only then: all that is taken over is copied.
  if (other->session.length() < text.num_shared && other->session.num_unread() > 0) return true;
  const int64_t count = std::min({text.num_shared, session.length() + session.num_unread(),
                                  other->session.length(), other->cache.length()});
  if (count <= session.length()) return false;
  if (const auto sent = session.adopt(other->session, count)) {
    text.cache = other->cache.fork();
    text.cache.truncate(count);
    sent_.insert(sent_.end(), sent->begin(), sent->end());
  } else {
    text.num_shared = 0;
  }
  return false;
}

/// How much of each session is read next; there is room for that. Where pages run out, texts that
/// are over go, then the youngest sessions end: their gateways begin them anew, later or elsewhere.
std::vector<int64_t> BlockEngine::prepare(Time now) {
  while (true) {
    std::vector<int64_t> num_unread;
    for (Text& text : texts_) {
      if (waits_for_adapter(text, now) || waits_for_beginning(text)) {
        num_unread.push_back(0);
        continue;
      }
      // The head takes long for many rows.
      const int64_t most = text.session.has_orders() ? std::min(pass_rows_, kDrawn) : pass_rows_;
      num_unread.push_back(std::min(text.session.num_readable(kPassBytes), most));
    }
    std::vector<int64_t> counts = plan_pass(num_unread, options_.prompt_tokens, kFew);
    auto text = texts_.begin();
    size_t i = 0;
    for (; text != texts_.end(); ++text, ++i) {
      // Its gateway may have gone back in the text.
      if (text->cache.length() > text->session.length()) {
        text->cache.truncate(text->session.length());
      }
      if (!text->cache.prepare(counts[i])) break;
    }
    if (text == texts_.end()) return counts;
    if (end_rest()) continue;
    end(std::prev(texts_.end()), Fault::kNoMemory,
        fmt::format("all {} positions for keys and values are taken", num_positions()));
  }
}

void BlockEngine::tick(Time now) {
  for (auto text = texts_.begin(); text != texts_.end();) {
    const bool waits = text->session.num_unread() == 0 || lacks_adapter(*text);
    const bool is_idle =
        !text->session.rests() && waits && now - text->heard > options_.idle_patience;
    text = is_idle ? end(text, Fault::kNotKept, "nobody went on with it") : std::next(text);
  }
  std::erase_if(asked_, [&](const auto& entry) {
    const auto& [id, layers] = entry.first;
    return now - entry.second > kAskAgain && !options_.adapters->is_coming(id, layers);
  });
}

void BlockEngine::read(Time now) {
  tick(now);
  const std::vector<int64_t> counts = prepare(now);
  std::map<chain::Span, std::pair<std::vector<Text*>, std::vector<int64_t>>> passes;
  size_t i = 0;
  for (Text& text : texts_) {
    const int64_t count = counts[i++];
    if (count == 0) continue;
    text.heard = now;
    auto& [texts, texts_counts] = passes[text.session.layers()];
    texts.push_back(&text);
    texts_counts.push_back(count);
  }
  for (const auto& [layers, texts] : passes) pass(layers, texts.first, texts.second);
  limit_kept();
}

/// Texts that are over lose what they have kept, then the oldest sessions: they are the likeliest
/// to end before it is wanted.
void BlockEngine::limit_kept() {
  int64_t bytes = 0;
  for (const Text& text : texts_) bytes += text.session.kept_bytes();
  for (const bool rests : {true, false}) {
    for (Text& text : texts_) {
      if (bytes <= options_.kept_bytes) return;
      if (text.session.rests() != rests) continue;
      bytes -= text.session.kept_bytes();
      text.session.stop_keeping();
    }
  }
}

}  // namespace atl::serve
