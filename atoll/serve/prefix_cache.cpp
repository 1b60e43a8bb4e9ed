#include "atoll/serve/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace atl::serve {
namespace {

constexpr int64_t kPositions = model::KvPool::kPagePositions;

std::vector<int64_t> tokens_of_page(std::span<const int64_t> tokens, int64_t page) {
  const auto own = tokens.subspan(static_cast<size_t>(page * kPositions), kPositions);
  return {own.begin(), own.end()};
}

}  // namespace

std::vector<model::KvPage> PrefixCache::find(uint64_t tenant, std::span<const int64_t> tokens) {
  std::vector<model::KvPage> pages;
  Node* node = &roots_[tenant];
  while (std::ssize(tokens) > (std::ssize(pages) + 1) * kPositions) {
    const auto child = node->children.find(tokens_of_page(tokens, std::ssize(pages)));
    if (child == node->children.end()) break;
    node = child->second.get();
    pages.push_back(node->page);
  }
  // A text's end is older than its beginning, and goes first.
  for (; node->parent != nullptr; node = node->parent) use(*node);
  return pages;
}

void PrefixCache::add(uint64_t tenant, std::span<const int64_t> tokens,
                      std::span<const model::KvPage> pages) {
  Node* node = &roots_[tenant];
  const int64_t count = std::min<int64_t>(std::ssize(tokens) / kPositions, std::ssize(pages));
  for (int64_t page = 0; page < count; ++page) {
    const auto [place, is_new] = node->children.try_emplace(tokens_of_page(tokens, page));
    if (is_new) {
      place->second = std::make_unique<Node>();
      Node& added = *place->second;
      added.parent = node;
      added.place = place;
      added.page = pages[static_cast<size_t>(page)];
      added.age = by_age_.insert(by_age_.end(), &added);
    }
    node = place->second.get();
  }
  for (; node->parent != nullptr; node = node->parent) use(*node);
}

bool PrefixCache::evict() {
  const auto found = std::ranges::find_if(by_age_, [](const Node* node) {
    return node->children.empty() && node->page.use_count() == 1;
  });
  if (found == by_age_.end()) return false;
  Node* const node = *found;
  by_age_.erase(found);
  node->parent->children.erase(node->place);
  return true;
}

void PrefixCache::purge(uint64_t tenant) {
  const auto root = roots_.find(tenant);
  if (root == roots_.end()) return;
  std::vector<Node*> nodes{&root->second};
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (auto& [tokens, child] : nodes[i]->children) nodes.push_back(child.get());
  }
  for (size_t i = 1; i < nodes.size(); ++i) by_age_.erase(nodes[i]->age);
  roots_.erase(root);
}

}  // namespace atl::serve
