// What a pass of a block engine makes of rows, and what goes on of it.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/chain/rows.h"
#include "atoll/serve/block_engine.h"

namespace atl::serve {

using chain::Fault;

/// What the layers read of a text's next rows, and what its gateway has ordered of them. Throws
/// InputError where that cannot be.
std::vector<decoding::Order> BlockEngine::gather(Text& text, int64_t count,
                                                 std::vector<float>& values_TC) const {
  const auto width = static_cast<size_t>(model_.config().hidden_size);
  std::vector<int64_t> ids;
  std::vector<decoding::Order> orders;
  bool has_orders = false;
  for (chain::Rows& rows : text.session.unread(count)) {
    has_orders = has_orders || !rows.orders.empty();
    rows.orders.resize(rows.num_tokens);
    std::ranges::move(rows.orders, std::back_inserter(orders));
    ids.insert(ids.end(), rows.ids.begin(), rows.ids.end());
    if (!rows.ids.empty()) continue;
    const size_t at = values_TC.size();
    values_TC.resize(at + rows.num_tokens * width);
    chain::decode_rows(rows, std::span(values_TC).subspan(at));
  }
  const chain::ServerSession& session = text.session;
  const bool ends = session.hops().size() == 1;
  if (!has_orders) orders.clear();
  if (has_orders && ends && !has_head_at(session.layers().end)) {
    throw InputError("something is to be drawn where there is no head");
  }
  // What is made for positions before these nobody waits for.
  const int64_t unwanted = session.hops().front().send_from - session.length();
  for (int64_t i = 0; ends && i < std::min(unwanted, std::ssize(orders)); ++i) {
    orders[static_cast<size_t>(i)] = {};
  }
  if (ids.empty()) return orders;
  if (std::ssize(ids) != count) throw InputError("rows behind tokens, or tokens behind rows");
  const at::Tensor x_TC = embed_TC(model_, ids, text.cache);
  values_TC.insert(values_TC.end(), x_TC.const_data_ptr<float>(),
                   x_TC.const_data_ptr<float>() + x_TC.numel());
  return orders;
}

/// Of the texts whose last layer is here the orders are followed.
void BlockEngine::follow(const at::Tensor& made_TC, std::span<Reading> readings) const {
  std::vector<decoding::Order> orders_T;  // Nothing of the rows of those who go on.
  bool draws = false;
  for (const Reading& reading : readings) {
    if (reading.draws()) std::ranges::copy(reading.orders, std::back_inserter(orders_T));
    orders_T.resize(orders_T.size() + (reading.draws() ? 0 : reading.count()));
    draws = draws || reading.draws();
  }
  if (!draws) return;
  std::vector<Followed> followed_T = follow_orders(model_, made_TC, orders_T);
  auto first = followed_T.begin();
  for (Reading& reading : readings) {
    const auto end = first + static_cast<std::ptrdiff_t>(reading.count());
    if (reading.draws()) std::move(first, end, std::back_inserter(reading.followed));
    first = end;
  }
}

/// What goes on of what the layers made of a text's rows. Throws InputError where that is not
/// finite.
chain::Rows BlockEngine::encoded(Reading& reading, std::span<const float> made_TC) const {
  const chain::ServerSession& session = reading.text->session;
  if (!reading.draws()) {
    chain::Rows rows = chain::encode_rows(made_TC, session.length(), model_.config().hidden_size,
                                          session.precision());
    rows.orders = std::move(reading.orders);
    return rows;
  }
  if (!std::ranges::all_of(made_TC, [](float value) { return std::isfinite(value); })) {
    throw InputError("what the layers make is not finite");
  }
  chain::Rows rows{.begin = session.length(),
                   .num_tokens = static_cast<uint32_t>(reading.num_tokens),
                   .precision = session.precision()};
  for (Followed& each : reading.followed) {
    if (!each.fault.empty()) throw InputError(each.fault);
    rows.outcomes.push_back(std::move(each.outcome));
  }
  return rows;
}

void BlockEngine::pass(chain::Span layers, std::span<Text* const> texts,
                       std::span<const int64_t> counts) {
  const int64_t width = model_.config().hidden_size;
  std::vector<Reading> good;
  std::vector<model::CachedRow> rows;
  std::vector<float> values_TC;
  std::vector<chain::SessionId> ended;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t begin = values_TC.size();
    try {
      good.push_back({.text = texts[i], .orders = gather(*texts[i], counts[i], values_TC)});
      good.back().num_tokens = counts[i];
      rows.push_back({&texts[i]->cache, counts[i], texts[i]->adapter.get()});
    } catch (const std::exception& error) {
      values_TC.resize(begin);
      complain(texts[i]->session, Fault::kDamaged, error.what());
      ended.push_back(texts[i]->session.id());
    }
  }
  at::Tensor made_TC;
  std::string trouble;
  if (!good.empty()) {
    try {
      const at::Tensor x_1TC = at::empty({1, static_cast<int64_t>(values_TC.size()) / width, width},
                                         at::TensorOptions().dtype(at::kFloat));
      std::ranges::copy(values_TC, x_1TC.mutable_data_ptr<float>());
      made_TC = model_.layers_1TC({layers.begin, layers.end}, x_1TC.to(model_.device()), rows)[0]
                    .to(at::kCPU)
                    .contiguous();
      follow(made_TC, good);
    } catch (const std::exception& error) {
      trouble = error.what();
    }
  }
  size_t first = 0;
  for (Reading& reading : good) {
    chain::ServerSession& session = reading.text->session;
    const size_t size = reading.count() * static_cast<size_t>(width);
    try {
      if (!trouble.empty()) throw InputError(trouble);
      const std::span received(values_TC.data() + first, size);
      const std::span made(made_TC.const_data_ptr<float>() + first, size);
      chain::Rows sent = encoded(reading, made);
      session.note(witness_.see(received, width), witness_.see(made, width));
      if (auto message = session.read(std::move(sent))) sent_.push_back(*std::move(message));
    } catch (const InputError& error) {
      complain(session, Fault::kBroken, error.what());
      ended.push_back(session.id());
    }
    first += size;
  }
  for (const chain::SessionId& id : ended) texts_.erase(find(id));
  ++num_passes_;
}

}  // namespace atl::serve
