#pragma once
// The texts of a vocabulary's tokens as a tree: what begins alike is looked at once. Shared by
// threads; nothing of it changes but what is kept for masks.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl::grammar {

using TokenId = int32_t;  // As the tokenizer's.

class KeptMasks;

class Vocabulary {
 public:
  /// `tokens[id]` are the bytes of a token within a text; none for what is not text (special
  /// tokens, padding): never allowed. `end_ids` end a text. Throws InputError when a token is too
  /// long.
  Vocabulary(std::span<const std::string> tokens, std::vector<TokenId> end_ids);

  /// In the order of a walk: a node's descendants stand behind it, up to `end`.
  /// `bytes` are the classes of all bytes below a node.
  struct Node {
    uint64_t bytes = 0;
    uint32_t first_id = 0;  // Place in ids() of those that end here; up to the next node's.
    uint32_t end = 0;
    uint16_t depth = 0;  // Bytes from the root, which is no node.
    uint8_t byte = 0;
  };
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  /// The ids that end at a node, or at it and those up to `end`.
  std::span<const TokenId> ids(uint32_t node, uint32_t end) const {
    return {ids_.data() + nodes_[node].first_id, nodes_[end].first_id - nodes_[node].first_id};
  }
  std::string_view bytes(TokenId id) const { return tokens_[static_cast<size_t>(id)]; }
  std::span<const TokenId> end_ids() const { return end_ids_; }
  bool is_end(TokenId id) const;
  size_t size() const { return tokens_.size(); }
  uint16_t max_depth() const { return max_depth_; }
  /// For TokenMasks: what is known of the states that all grammars of schemas share.
  KeptMasks& kept() const { return *kept_; }

  static constexpr size_t kMaxTokenBytes = 4096;
  /// Bytes that grammars seldom tell apart are one of at most 64 classes; a bit for each.
  static uint64_t class_of(uint8_t byte);

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenId> end_ids_;
  std::vector<TokenId> ids_;  // In the order of the tree.
  std::vector<Node> nodes_;   // One more than there are.
  uint16_t max_depth_ = 0;
  std::shared_ptr<KeptMasks> kept_;
};

}  // namespace atl::grammar
