#pragma once
// Full pages of keys and values of texts that were read, by their tokens: who begins with the same
// tokens begins with these pages. A tree for each tenant, a page per edge; a page is found only
// behind all that came before it. What was used longest ago goes first, the ends of texts before
// their beginnings. Owned by one thread.
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "atoll/model/kv_cache.h"

namespace atl::serve {

class PrefixCache {
 public:
  /// The pages of the longest beginning of `tokens` that is here, but none with their last token:
  /// what follows from that is to be computed.
  std::vector<model::KvPage> find(uint64_t tenant, std::span<const int64_t> tokens);
  /// The pages that `tokens` fill, the first of them first. Those that are here stay.
  void add(uint64_t tenant, std::span<const int64_t> tokens, std::span<const model::KvPage> pages);
  /// Lets go of the page that was used longest ago and that nobody else has. False: there is none.
  bool evict();
  /// Nothing of that tenant's is here any more.
  void purge(uint64_t tenant);
  int64_t num_pages() const { return std::ssize(by_age_); }

 private:
  struct Node;
  using Children = std::map<std::vector<int64_t>, std::unique_ptr<Node>>;
  struct Node {
    Node* parent = nullptr;    // Null: a root, which has no page.
    Children::iterator place;  // Among the parent's children.
    model::KvPage page;
    std::list<Node*>::iterator age;
    Children children;
  };

  void use(Node& node) { by_age_.splice(by_age_.end(), by_age_, node.age); }

  std::map<uint64_t, Node> roots_;
  std::list<Node*> by_age_;  // Used longest ago first.
};

}  // namespace atl::serve
