#pragma once
// A small model that guesses how texts of a larger one go on. It reads the texts of all sessions
// together, keeps their keys and values in pages of a budget, and finds by itself what of a text is
// not as it was. Texts for which there is no room go without its guesses. Owned by one thread.
//
// Shapes: T = tokens of a pass, V = the larger model's vocabulary.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "atoll/model/kv_cache.h"
#include "atoll/model/model.h"
#include "atoll/serve/prefix_cache.h"
#include "atoll/serve/sequence.h"

namespace atl::serve {

class DraftModel {
 public:
  using Id = Sequence::Id;
  struct Text {
    Id id = 0;
    uint64_t tenant = 0;           // Others' texts give nothing to its.
    std::span<const int64_t> ids;  // Tokens, and guesses behind them; at least one.
  };
  struct Read {
    Id id = 0;
    at::Tensor row_V;  // The logits of what follows.
  };

  /// The model outlives it, and has `vocab_size` ids at least. Throws UsageError where `kv_bytes`
  /// hold no page.
  DraftModel(const model::Model& model, int64_t vocab_size, int64_t kv_bytes);

  /// One pass: all of those that lack little, or a part of the first of the others. Gives those
  /// that were read to their end.
  std::vector<Read> read(std::span<const Text> texts);
  /// Whether there is room for that text, and something to read of it.
  bool lacks(const Text& text) const;
  /// It is too long, or there was no room for it.
  bool gives_up(const Text& text) const;
  void forget(Id id);
  /// Nothing that was read for that tenant is kept any more.
  void purge(uint64_t tenant);

  int64_t kv_bytes() const { return pool_->num_taken() * pool_->page_bytes(); }
  int64_t kv_capacity_bytes() const { return kv_bytes() + pool_->num_left() * pool_->page_bytes(); }

 private:
  struct Known {
    uint64_t tenant = 0;
    std::vector<int64_t> ids;  // Whose keys and values are there.
    model::KvCache cache;
    bool is_private = false;  // Nothing of it is kept.
  };

  Known& known(const Text& text);
  bool prepare(Known& known, int64_t count);
  void remember(const Known& known, int64_t begin);

  const model::Model& model_;
  const int64_t vocab_size_;
  const std::shared_ptr<model::KvPool> pool_;
  const int64_t context_;
  PrefixCache prefixes_;
  std::map<Id, Known> known_;
  std::set<Id> without_room_;  // Until another one is forgotten.
};

}  // namespace atl::serve
