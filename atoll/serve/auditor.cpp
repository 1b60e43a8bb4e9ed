#include "atoll/serve/auditor.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <span>
#include <tuple>
#include <utility>

#include "atoll/base/process.h"
#include "atoll/chain/fingerprint.h"
#include "atoll/chain/rows.h"
#include "atoll/serve/sequence.h"

namespace atl::serve {
namespace {

/// Of a server, to give what it has had: other audits wait meanwhile.
constexpr Duration kPagesPatience = std::chrono::seconds(30);

std::span<const float> values_of(const at::Tensor& x_TC) {
  return {x_TC.const_data_ptr<float>(), static_cast<size_t>(x_TC.numel())};
}

/// As who gets it over the wire has it.
void travel(at::Tensor& x_TC, chain::Precision precision) {
  const chain::Rows rows = chain::encode_rows(values_of(x_TC), 0, x_TC.size(1), precision);
  chain::decode_rows(rows, {x_TC.mutable_data_ptr<float>(), static_cast<size_t>(x_TC.numel())});
}

}  // namespace

chain::Recomputed recompute(const model::Model& model, const AuditWork& work,
                            const KnownPages& pages_of, const std::function<bool()>& stops) {
  const at::NoGradGuard no_grad;
  const auto num_tokens = std::ssize(work.tokens);
  const int64_t first = work.known.num_tokens();  // The position of the first row of x_TC.
  const auto cache_for = [&](model::LayerRange layers) {
    return model::KvCache(model.kv_pool(layers));
  };
  model::KvCache none = cache_for({});
  none.advance(first);
  const model::CachedRow embedded{&none, num_tokens - first};
  const std::vector<int64_t> ids(work.tokens.begin() + first, work.tokens.end());
  at::Tensor x_TC = model.decoder()
                        .embed(tensor_1T(ids), std::span(&embedded, 1))[0]
                        .to(at::kFloat)
                        .clone(at::MemoryFormat::Contiguous);
  const chain::Recomputed nothing{.number = work.number, .hops = {}};
  chain::Recomputed found = nothing;
  // Of positions that were restored a server has seen nothing.
  const auto difference = [&](const std::vector<chain::Fingerprint>& said, const chain::Hop& hop) {
    const int64_t from = std::min({hop.restored, std::ssize(said), num_tokens});
    return chain::difference(std::span(said).subspan(static_cast<size_t>(from)),
                             values_of(x_TC.narrow(0, from - first, num_tokens - from)));
  };
  for (size_t i = 0; i < work.hops.size(); ++i) {
    const chain::Hop& hop = work.hops[i];
    travel(x_TC, work.precision);
    chain::Recomputed::Hop& errors = found.hops.emplace_back();
    errors.is_restored = hop.restored > 0;
    errors.received = difference(work.said[i].received, hop);
    const std::vector<at::Tensor> pages = first > 0 ? pages_of(i) : std::vector<at::Tensor>();
    if (first > 0 && pages.empty()) return nothing;
    for (int64_t layer = hop.layers.begin; layer < hop.layers.end; ++layer) {
      if (stops()) return nothing;
      model::KvCache cache = cache_for({layer, layer + 1});
      std::vector<at::Tensor> of_layer;
      for (const at::Tensor& page : pages) {
        of_layer.push_back(page.narrow(0, layer - hop.layers.begin, 1));
      }
      // There is no limit.
      std::ignore = cache.append(of_layer) && cache.prepare(num_tokens - first);
      const model::CachedRow row{&cache, num_tokens - first, work.adapter.get()};
      x_TC = model.layers_1TC({layer, layer + 1}, x_TC.unsqueeze(0), std::span(&row, 1))[0];
    }
    x_TC = x_TC.clone(at::MemoryFormat::Contiguous);
    errors.made = difference(work.said[i].made, hop);
  }
  travel(x_TC, work.precision);
  const int64_t from = std::clamp(work.arrived_from, first, num_tokens);
  const int64_t count = std::min(std::ssize(work.arrived), num_tokens - from);
  found.arrived = chain::difference(std::span(work.arrived).first(static_cast<size_t>(count)),
                                    values_of(x_TC.narrow(0, from - first, count)));
  return found;
}

Auditor::Auditor(Load load, KvDesk* desk, std::function<void()> done,
                 std::function<void(const std::string&)> tell)
    : load_(std::move(load)),
      desk_(desk),
      done_(std::move(done)),
      tell_(std::move(tell)),
      thread_([this] { run(); }) {}

Auditor::~Auditor() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    arrived_.notify_all();
  }
  thread_.join();
}

void Auditor::add(uint64_t number, std::vector<chain::Hop> hops,
                  std::vector<chain::Testimony> said) {
  auto work = set_aside_.extract(number);
  if (work.empty()) return;
  work.mapped().hops = std::move(hops);
  work.mapped().said = std::move(said);
  const MutexLock lock(mutex_);
  works_.push_back(std::move(work.mapped()));
  arrived_.notify_all();
}

std::vector<chain::Recomputed> Auditor::take() {
  const MutexLock lock(mutex_);
  return std::exchange(found_, {});
}

/// From the server itself.
std::vector<at::Tensor> Auditor::known_pages(const AuditWork& work, size_t hop) const {
  return desk_->find_as({.session = {},
                         .layers = work.hops[hop].layers,
                         .group = work.known.group,
                         .chunks = work.known.chunks,
                         .holders = {work.hops[hop].address}},
                        work.known.levels[hop], kPagesPatience);
}

void Auditor::run() {
  yield_to_others();
  std::unique_ptr<model::Model> model;
  bool is_told = false;
  MutexLock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this]() ATOLL_REQUIRES(mutex_) { return stops_ || !works_.empty(); });
    if (stops_) return;
    const AuditWork work = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    chain::Recomputed found{.number = work.number, .hops = {}};
    try {
      if (!model) model = load_();
      found = recompute(
          *model, work, [&](size_t hop) { return known_pages(work, hop); },
          [this] { return stops_.load(); });
    } catch (const std::exception& error) {
      // No memory, mostly; but what servers say they have had is theirs.
      if (work.known.chunks.empty() && !std::exchange(is_told, true)) tell_(error.what());
    }
    lock.lock();
    found_.push_back(std::move(found));
    done_();
  }
}

}  // namespace atl::serve
