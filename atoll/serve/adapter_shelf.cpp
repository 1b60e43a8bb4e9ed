#include "atoll/serve/adapter_shelf.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/serve/lesson_values.h"

namespace atl::serve {

AdapterShelf::Held AdapterShelf::begun(const chain::Adapt& message) {
  weights::AdapterConfig config{.rank = message.rank,
                                .alpha = message.alpha,
                                .scales_by_root = message.scales_by_root,
                                .targets = message.targets};
  if (config.rank == 0) throw InputError("a soft prompt has no layers");
  const chain::Span layers = message.layers;
  // Before there is memory for it.
  const auto specs = weights::adapter_specs(model_.config(), config, layers.begin, layers.end);
  const int64_t size = specs.empty() ? 0 : specs.back().offset + specs.back().size;
  if (size > options_.num_bytes / static_cast<int64_t>(sizeof(float))) {
    throw InputError(fmt::format("an adapter of {} values", size));
  }
  if (pinned_bytes() > options_.num_bytes) {
    throw InputError("texts are read by more adapters than there is memory for");
  }
  return {.version = message.version,
          .adapter = std::make_shared<model::Adapter>(model_.config(), std::move(config),
                                                      model::LayerRange{layers.begin, layers.end},
                                                      model_.device(), model::Purpose::kInference)};
}

AdapterShelf::Put AdapterShelf::put(const chain::Adapt& message) {
  const Key key{message.adapter, message.layers};
  auto node = held_.extract(key);
  if (node.empty() && message.begin != 0) return gone_.erase(key) > 0 ? Put::kGone : Put::kStray;
  gone_.erase(key);
  Held held = node.empty() ? Held{} : std::move(node.mapped());
  if (message.begin == 0) held = begun(message);
  if (held.adapter == nullptr || held.version != message.version ||
      held.num_come != message.begin) {
    throw InputError("parts of an adapter that do not follow each other");
  }
  const at::NoGradGuard no_grad;
  held.num_come += put_values(message.values, message.begin, held.adapter->parameters().values_P());
  held.used = ++clock_;
  held_[key] = std::move(held);
  limit();
  return Put::kKept;
}

/// Not the one used last; those that are complete first: the rest of another is on its way.
void AdapterShelf::limit() {
  while (held_.size() > 1) {
    int64_t bytes = 0;
    for (const auto& [key, held] : held_) {
      bytes += held.num_values() * static_cast<int64_t>(sizeof(float));
    }
    if (std::ssize(held_) <= options_.num_adapters && bytes <= options_.num_bytes) return;
    const auto first = std::ranges::min_element(held_, {}, [&](const auto& entry) {
      const Held& held = entry.second;
      return std::tuple(held.used == clock_, !held.is_complete(), held.used);
    });
    if (first->second.is_complete()) {
      pinned_.emplace_back(first->second.adapter);
    } else {
      if (std::ssize(gone_) == options_.num_adapters) gone_.clear();  // Nobody sends so many.
      gone_.insert(first->first);
    }
    held_.erase(first);
  }
}

int64_t AdapterShelf::pinned_bytes() {
  int64_t bytes = 0;
  std::erase_if(pinned_, [&](const auto& weak) {
    const auto adapter = weak.lock();
    if (adapter != nullptr)
      bytes += static_cast<int64_t>(adapter->parameters().values_P().nbytes());
    return adapter == nullptr;
  });
  return bytes;
}

bool AdapterShelf::has(const chain::SessionId& id, chain::Span layers, uint64_t version) const {
  const auto found = held_.find({id, layers});
  return found != held_.end() && found->second.version == version && found->second.is_complete();
}

std::shared_ptr<const model::Adapter> AdapterShelf::find(const chain::SessionId& id,
                                                         chain::Span layers, uint64_t version) {
  if (!has(id, layers, version)) return nullptr;
  Held& held = held_.at({id, layers});
  held.used = ++clock_;
  return held.adapter;
}

bool AdapterShelf::is_coming(const chain::SessionId& id, chain::Span layers) const {
  const auto found = held_.find({id, layers});
  return found != held_.end() && !found->second.is_complete();
}

void AdapterShelf::forget_gateway(uint64_t gateway) {
  std::erase_if(held_, [&](const auto& entry) { return entry.first.first.gateway == gateway; });
  std::erase_if(gone_, [&](const Key& key) { return key.first.gateway == gateway; });
}

std::vector<chain::Adapt> messages_of(const model::Adapter& adapter, const at::Tensor& values_P,
                                      const chain::SessionId& id, uint64_t version,
                                      chain::Span layers) {
  const auto [begin, count] = adapter.values_of({layers.begin, layers.end});
  const weights::AdapterConfig& config = adapter.config();
  std::vector<chain::Adapt> messages;
  std::vector<ValuesPart> parts = parts_of(values_P.narrow(0, begin, count));
  if (parts.empty()) parts.emplace_back();
  for (ValuesPart& part : parts) {
    messages.push_back({.adapter = id,
                        .version = version,
                        .layers = layers,
                        .rank = static_cast<int32_t>(config.rank),
                        .alpha = config.alpha,
                        .scales_by_root = config.scales_by_root,
                        .targets = config.targets,
                        .begin = part.begin,
                        .values = std::move(part.bytes)});
  }
  return messages;
}

std::string digest_of(const model::Adapter& adapter) {
  const at::Tensor& values_P = adapter.parameters().values_P();
  Sha256 hash;
  hash.update(fmt::format("{} {} ", adapter.config().rank, adapter.scale()));
  for (const std::string& target : adapter.config().targets) hash.update(target + " ");
  hash.update(std::as_bytes(
      std::span(values_P.const_data_ptr<float>(), static_cast<size_t>(values_P.numel()))));
  return "+adapter-" + hex(hash.finish());
}

}  // namespace atl::serve
