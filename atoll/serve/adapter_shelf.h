#pragma once
// Adapters beside a server's layers, as gateways have sent them: for texts that are read by one,
// and for lessons. Those used longest ago go first; who needs one that is gone is sent it again.
// Owned by one thread.
//
// Shapes: P = an adapter's values.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/chain/messages.h"
#include "atoll/model/adapter.h"
#include "atoll/model/model.h"

namespace atl::serve {

struct AdapterShelfOptions {
  int64_t num_bytes = int64_t{256} << 20;
  int64_t num_adapters = 1024;
};

class AdapterShelf {
 public:
  /// The model outlives it; its layers are those that it was loaded with.
  explicit AdapterShelf(const model::Model& model, const AdapterShelfOptions& options = {})
      : model_(model), options_(options) {}

  /// What has become of a part of one.
  enum class Put : uint8_t {
    kKept,
    kGone,   // What came of it before had to go: it is needed anew.
    kStray,  // Of one that is not here: nothing comes of it.
  };

  /// Throws InputError where it cannot be of this model, is not finite, too large, or does not
  /// follow on what came of it before: nothing of it is kept then.
  Put put(const chain::Adapt& message);
  /// Null where that version is not here, or not all of it.
  std::shared_ptr<const model::Adapter> find(const chain::SessionId& id, chain::Span layers,
                                             uint64_t version);
  /// As find(), without counting as a use.
  bool has(const chain::SessionId& id, chain::Span layers, uint64_t version) const;
  /// Some of it is here.
  bool is_coming(const chain::SessionId& id, chain::Span layers) const;
  void forget_gateway(uint64_t gateway);

 private:
  using Key = std::pair<chain::SessionId, chain::Span>;
  struct Held {
    uint64_t version = 0;
    std::shared_ptr<model::Adapter> adapter;
    int64_t num_come = 0;  // Of its values.
    uint64_t used = 0;

    bool is_complete() const { return num_come == num_values(); }
    int64_t num_values() const { return adapter->parameters().values_P().numel(); }
  };

  Held begun(const chain::Adapt& message);
  void limit();
  int64_t pinned_bytes();

  const model::Model& model_;
  const AdapterShelfOptions options_;
  std::map<Key, Held> held_;
  std::vector<std::weak_ptr<const model::Adapter>> pinned_;  // Gone, but for texts that have them.
  std::set<Key> gone_;                                       // In the middle of their coming.
  uint64_t clock_ = 0;                                       // Of uses.
};

/// An adapter's values for these layers, as a server is sent them: one message at least, also where
/// it changes none of them.
std::vector<chain::Adapt> messages_of(const model::Adapter& adapter, const at::Tensor& values_P,
                                      const chain::SessionId& id, uint64_t version,
                                      chain::Span layers);

/// All that an adapter is: what is kept of texts by one is found by no other.
std::string digest_of(const model::Adapter& adapter);

}  // namespace atl::serve
