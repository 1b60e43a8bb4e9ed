#include "atoll/serve/block_engine.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/chain/rows.h"
#include "atoll/serve/engine.h"

namespace atl::serve {
namespace {

using chain::Fault;

constexpr int64_t kPositions = model::KvPool::kPagePositions;

int64_t num_pages(const model::Model& model, int64_t bytes) {
  const model::KvPool pool(model.config(), model.device(), model.decoder().layers(), 0);
  const int64_t pages = bytes / pool.page_bytes();
  if (pages > 0) return pages;
  throw UsageError(
      fmt::format("{} bytes for keys and values hold nothing: a page of {} positions has {}", bytes,
                  kPositions, pool.page_bytes()));
}

}  // namespace

BlockEngine::BlockEngine(const model::Model& model, const BlockEngineOptions& options)
    : model_(model),
      options_(options),
      pool_(std::make_shared<model::KvPool>(model.config(), model.device(),
                                            model.decoder().layers(),
                                            num_pages(model, options.kv_bytes))),
      context_(std::min(model.config().context(), pool_->num_left() * kPositions)) {}

int64_t BlockEngine::num_free() const { return pool_->num_left() * kPositions; }

int64_t BlockEngine::num_positions() const {
  return (pool_->num_left() + pool_->num_taken()) * kPositions;
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
    forgotten_.add(forget->session);
    if (const auto text = find(forget->session); text != texts_.end()) texts_.erase(text);
  }
}

void BlockEngine::work(chain::Work message, Time now) {
  if (forgotten_.has(message.session)) return;
  const auto& own = model_.decoder().layers();
  const chain::Span layers = message.hops.front().layers;
  const chain::Span here{static_cast<int32_t>(own.begin), static_cast<int32_t>(own.end)};
  chain::ServerSession stranger(message.session);
  if (!here.holds(layers)) {
    return complain(stranger, Fault::kNotKept,
                    fmt::format("layers {} to {} are asked for, and {} to {} are here",
                                layers.begin, layers.end - 1, here.begin, here.end - 1));
  }
  const bool is_good =
      message.rows_TC.size() ==
      message.num_tokens * chain::row_bytes(message.precision, model_.config().hidden_size);
  if (!is_good || message.begin + message.num_tokens > context_) {
    return complain(stranger, Fault::kDamaged,
                    is_good ? "rows beyond the context" : "rows of another model");
  }
  auto text = find(message.session);
  if (text == texts_.end()) {
    texts_.push_back({std::move(stranger), model::KvCache(pool_), now});
    text = std::prev(texts_.end());
  }
  text->heard = now;
  if (text->session.take(std::move(message))) return;
  end(text, Fault::kNotKept, "rows before these are missing");
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
  return std::ranges::all_of(texts_,
                             [](const Text& text) { return text.session.num_unread() == 0; });
}

/// How much of each session is read next; there is room for that. Where pages run out, the youngest
/// sessions end: their gateways begin them anew, later or elsewhere.
std::vector<int64_t> BlockEngine::prepare() {
  while (true) {
    std::vector<int64_t> num_unread;
    for (const Text& text : texts_) num_unread.push_back(text.session.num_unread());
    std::vector<int64_t> counts = plan_pass(num_unread, options_.prompt_tokens);
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
    end(std::prev(texts_.end()), Fault::kNoMemory,
        fmt::format("all {} positions for keys and values are taken", num_positions()));
  }
}

void BlockEngine::read(Time now) {
  std::erase_if(texts_,
                [&](const Text& text) { return now - text.heard > options_.idle_patience; });
  const std::vector<int64_t> counts = prepare();
  std::map<chain::Span, std::pair<std::vector<Text*>, std::vector<int64_t>>> passes;
  size_t i = 0;
  for (Text& text : texts_) {
    const int64_t count = counts[i++];
    if (count == 0) continue;
    auto& [texts, texts_counts] = passes[text.session.layers()];
    texts.push_back(&text);
    texts_counts.push_back(count);
  }
  for (const auto& [layers, texts] : passes) pass(layers, texts.first, texts.second);
  limit_kept();
}

void BlockEngine::pass(chain::Span layers, std::span<Text* const> texts,
                       std::span<const int64_t> counts) {
  const int64_t width = model_.config().hidden_size;
  std::vector<model::CachedRow> rows;
  std::vector<Text*> good;
  std::vector<float> values_TC;
  std::vector<chain::SessionId> ended;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t begin = values_TC.size();
    try {
      for (const chain::Rows& each : texts[i]->session.unread(counts[i])) {
        const size_t at = values_TC.size();
        values_TC.resize(at + each.num_tokens * static_cast<size_t>(width));
        chain::decode_rows(each, std::span(values_TC).subspan(at));
      }
      rows.push_back({&texts[i]->cache, counts[i]});
      good.push_back(texts[i]);
    } catch (const InputError& error) {
      values_TC.resize(begin);
      complain(texts[i]->session, Fault::kDamaged, error.what());
      ended.push_back(texts[i]->session.id());
    }
  }
  at::Tensor made_TC;
  std::string trouble;
  if (!good.empty()) {
    const at::Tensor x_1TC = at::empty({1, static_cast<int64_t>(values_TC.size()) / width, width},
                                       at::TensorOptions().dtype(at::kFloat));
    std::ranges::copy(values_TC, x_1TC.mutable_data_ptr<float>());
    try {
      made_TC = model_.layers_1TC({layers.begin, layers.end}, x_1TC.to(model_.device()), rows)[0]
                    .to(at::kCPU)
                    .contiguous();
    } catch (const std::exception& error) {
      trouble = error.what();
    }
  }
  const float* made = made_TC.defined() ? made_TC.const_data_ptr<float>() : nullptr;
  for (size_t i = 0; i < good.size(); ++i) {
    chain::ServerSession& session = good[i]->session;
    const auto size = static_cast<size_t>(rows[i].num_tokens * width);
    try {
      if (made == nullptr) throw InputError(trouble);
      chain::Rows encoded =
          chain::encode_rows({made, size}, session.length(), width, session.precision());
      if (auto sent = session.read(std::move(encoded))) sent_.push_back(*std::move(sent));
      made += size;
    } catch (const InputError& error) {
      complain(session, Fault::kBroken, error.what());
      ended.push_back(session.id());
      if (made != nullptr) made += size;
    }
  }
  for (const chain::SessionId& id : ended) texts_.erase(find(id));
  ++num_passes_;
}

/// The oldest sessions lose what they have kept: they are the likeliest to end before it is wanted.
void BlockEngine::limit_kept() {
  int64_t bytes = 0;
  for (const Text& text : texts_) bytes += text.session.kept_bytes();
  for (Text& text : texts_) {
    if (bytes <= options_.kept_bytes) return;
    bytes -= text.session.kept_bytes();
    text.session.stop_keeping();
  }
}

}  // namespace atl::serve
