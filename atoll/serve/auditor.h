#pragma once
// Texts are recomputed here that chains of servers have read (chain/audit.h), by a thread that
// yields to all others. The model's layers are mapped from its files, and read as they are needed.
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/base/mutex.h"
#include "atoll/chain/audit.h"
#include "atoll/chain/messages.h"
#include "atoll/kv/chunk.h"
#include "atoll/model/model.h"
#include "atoll/serve/kv_desk.h"

namespace atl::serve {

/// What a text begins with that is not recomputed: keys and values, as each server of its chain
/// says that it has had them (chain::Restored).
struct KnownBeginning {
  Digest group{};
  std::vector<kv::Chunk> chunks = {};
  std::vector<std::vector<uint8_t>> levels = {};  // Of each server, of each chunk and layer.

  int64_t num_tokens() const { return std::ssize(chunks) * kv::kChunkTokens; }
};

/// The beginning of a text, and what is known of what became of it.
struct AuditWork {
  uint64_t number = 0;
  std::vector<int64_t> tokens;
  std::shared_ptr<const model::Adapter> adapter = {};  // By which it is read; null: none.
  KnownBeginning known = {};
  std::vector<chain::Hop> hops;
  chain::Precision precision = chain::Precision::kFp32;
  std::vector<chain::Testimony> said;       // By each server, of all tokens.
  std::vector<chain::Fingerprint> arrived;  // Of what came of some of them,
  int64_t arrived_from = 0;                 // from this position on.
};

/// Of a hop's layers the keys and values of a known beginning, in a cache's pages; none where they
/// are not to be had.
using KnownPages = std::function<std::vector<at::Tensor>(size_t hop)>;

/// The model has all layers. Throws InputError where rows are not finite. Nothing is found where
/// `stops` says so in between, or `pages_of`, which is asked where a beginning is known, has none.
chain::Recomputed recompute(const model::Model& model, const AuditWork& work,
                            const KnownPages& pages_of, const std::function<bool()>& stops);

/// Called by one thread.
class Auditor {
 public:
  using Load = std::function<std::unique_ptr<model::Model>()>;

  /// `load` is called once, on the auditor's thread, when there is something to recompute; `done`
  /// there when take() has news; `tell` with why nothing can be recomputed. `desk`, which outlives
  /// it, finds what servers have had, and keeps nothing itself; null: no beginning is known.
  Auditor(Load load, KvDesk* desk, std::function<void()> done,
          std::function<void(const std::string&)> tell);
  ~Auditor();
  Auditor(const Auditor&) = delete;
  Auditor& operator=(const Auditor&) = delete;

  /// Until it is known what servers say, or forgotten.
  void set_aside(AuditWork work) { set_aside_[work.number] = std::move(work); }
  void forget(uint64_t number) { set_aside_.erase(number); }
  void add(uint64_t number, std::vector<chain::Hop> hops, std::vector<chain::Testimony> said);
  std::vector<chain::Recomputed> take();

 private:
  void run();
  std::vector<at::Tensor> known_pages(const AuditWork& work, size_t hop) const;

  const Load load_;
  KvDesk* const desk_;
  const std::function<void()> done_;
  const std::function<void(const std::string&)> tell_;
  std::map<uint64_t, AuditWork> set_aside_;
  Mutex mutex_;
  Condition arrived_;
  std::deque<AuditWork> works_ ATOLL_GUARDED_BY(mutex_);
  std::vector<chain::Recomputed> found_ ATOLL_GUARDED_BY(mutex_);
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace atl::serve
