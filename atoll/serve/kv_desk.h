#pragma once
// Where a server keeps keys and values of texts' chunks (kv/chunk.h), in memory, on disk and with a
// neighbour, and has them from again: a thread that codes and seals what there is time for, and one
// that opens what somebody waits for, while the server reads on. A cache: what is missing or
// damaged is read anew.
//
// Shapes: those of model/kv_pages.h.
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/chain/messages.h"
#include "atoll/kv/blob_store.h"
#include "atoll/kv/level_choice.h"
#include "atoll/serve/chunk_coder.h"
#include "atoll/serve/fetch_rates.h"

namespace atl::serve {

struct KvDeskOptions {
  kv::BlobStoreOptions store;
  std::string model;  // Its digest, with what it is served as.
  model::PageShape shape;
  std::shared_ptr<const Rounding> rounding = {};  // Null: level 0 alone.
  int num_threads = 1;                            // For coding.
  double neighbour_rate = 0;  // Bytes a second to neighbours, at most. 0: none are sent there.
  int64_t queue_bytes = int64_t{256} << 20;     // Of pages that wait to be coded.
  Duration patience = std::chrono::seconds(2);  // For an answer of another server.
};

/// Pages that are full, of the layers that the server has, to be kept as a chunk.
struct KeptPages {
  Digest group{};
  kv::Chunk chunk;
  int64_t begin = 0;        // Its first position.
  int32_t first_layer = 0;  // Of the pages.
  chain::Span layers;       // Those of the session.
  std::string neighbour;    // Empty: nobody else gets it.
  std::vector<at::Tensor> pages;
};

/// Chunks of a text, the first ones, in a cache's pages; and of each at which level each of the
/// layers came that were asked for.
struct FoundChunks {
  std::vector<at::Tensor> pages;
  std::vector<uint8_t> levels;
};

class KvDesk {
 public:
  /// `send`: to another server, from any thread. `restored`: what was found of it. `tell`: of a
  /// disk that cannot be written, or does not give back what was; from any thread, each once.
  struct Hooks {
    std::function<void(const std::string& address, const chain::Message& message)> send;
    std::function<void(const chain::Restore& order, chain::Span pages_layers, FoundChunks found)>
        restored;
    std::function<void(const std::string& sentence)> tell;
  };

  /// Throws UsageError: see BlobStore. The clock outlives it.
  KvDesk(KvDeskOptions options, Hooks hooks, const Clock& clock);
  ~KvDesk();
  KvDesk(const KvDesk&) = delete;
  KvDesk& operator=(const KvDesk&) = delete;

  // Thread-safe, and quick but for find(), find_as() and fetch().
  /// Nobody waits for anything of it any more.
  void stop();
  void keep(KeptPages pages);
  /// Pages are to have these layers of the server's.
  void restore(chain::Restore order, chain::Span pages_layers);
  /// As many chunks as are to be had, from number `first` on, in pages of these layers of the
  /// server's. Waits for it.
  FoundChunks find(const chain::Restore& order, chain::Span pages_layers, size_t first = 0);
  /// Pages of the order's layers, of all of its chunks, as they were found with these levels, from
  /// its holders; none where that cannot be, or takes longer than `patience`. Waits for it, and
  /// lets other things that come over the same lines go first.
  std::vector<at::Tensor> find_as(const chain::Restore& order, std::span<const uint8_t> levels,
                                  Duration patience);
  /// From another server: what is asked for, from its disk if need be; to be kept; what came.
  chain::Fetched fetch(const chain::Fetch& question);
  chain::Stored store(chain::Store blobs);
  /// Nothing of that group is kept here any more, nor what comes of it in the next minute: it may
  /// have been on its way.
  void purge(const Digest& group);
  /// From the server at that address.
  void hear(const std::string& holder, chain::Fetched answer);
  void hear(const chain::Stored& answer);
  /// Layers times positions a second, to neighbours; 0: not yet known.
  double neighbour_speed() const;

 private:
  struct Order {
    chain::Restore restore;
    chain::Span pages_layers;
    Time begun{};
    /// As each layer of each chunk is to be found; empty: as is best.
    std::span<const uint8_t> levels = {};
    Time until = Time::max();
    bool may_round = true;    // Some other server may have it rounded.
    std::string helper = {};  // Who had some of it last.
  };
  /// A chunk of an order whose blobs are being gathered.
  struct Gathering {
    size_t chunk = 0;
    std::vector<std::string> holders;  // Are asked in this order.
    double bytes = 0;                  // To come, about.
    std::vector<kv::Part> parts;
    std::vector<kv::BlobName> names;    // Of each part,
    std::vector<kv::SharedBlob> blobs;  // null as long as it is missing,
    std::vector<bool> are_own;          // and whether it was here.
    size_t next_holder = 0;
    uint64_t question = 0;    // Under way; 0: none.
    bool has_helped = false;  // The last one asked.

    size_t level() const;  // The highest of its parts.
  };
  /// What was asked of another server.
  struct Question {
    std::string holder;
    Time asked{};
    std::optional<chain::Fetched> answer;
  };
  struct Put {
    std::string address;
    chain::Store message;
    double work = 0;  // Layers times positions.
    double bytes = 0;
  };

  static constexpr size_t kMostInMessage = size_t{3} << 20;  // Bytes: a frame holds 4 MiB.

  Duration patience(double bytes) const;
  void run_keeping();
  void run_restoring();
  bool is_purged(const Digest& group) const ATOLL_REQUIRES(mutex_);
  bool was_purged(const Digest& group) const;  // The same, for who has not got the mutex.
  void put_away(const kv::BlobName& name, kv::SharedBlob blob);
  void code(const KeptPages& pages);
  std::vector<double> bytes_by_level(chain::Span layers) const ATOLL_REQUIRES(mutex_);
  kv::Pace pace_of(const Order& order) const ATOLL_REQUIRES(mutex_);
  std::optional<Gathering> begin_gathering(const Order& order, size_t chunk, double num_asked);
  Gathering gathering_of(const Order& order, size_t chunk, std::span<const kv::Part> parts);
  Gathering gathering_at(const Order& order, size_t chunk, size_t level);
  void ask(const Order& order, Gathering& gathering);
  bool gather(Order& order, Gathering& gathering);
  void put(const std::string& address, std::vector<chain::NamedBlob> blobs, double work);
  void ask_ahead(const Order& order, size_t& next, size_t& end, std::deque<Gathering>& ahead);
  FoundChunks find(Order order, size_t first = 0);
  bool open(const Order& order, Gathering& gathering, std::span<const at::Tensor> pages);
  bool have(Order& order, Gathering& gathering, std::span<const at::Tensor> pages);
  void note_damage();
  void note_size(const kv::Part& part, size_t size);
  void send_next(Time now) ATOLL_REQUIRES(mutex_);
  Duration until_send(Time now) const ATOLL_REQUIRES(mutex_);

  const KvDeskOptions options_;
  const ChunkCoder coder_;
  const Hooks hooks_;
  const Clock& clock_;
  kv::BlobStore store_;
  std::atomic<bool> has_told_damage_ = false;
  mutable Mutex mutex_;
  Condition changed_;
  bool stops_ ATOLL_GUARDED_BY(mutex_) = false;
  std::deque<KeptPages> to_keep_ ATOLL_GUARDED_BY(mutex_);
  int64_t to_keep_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  std::deque<Order> to_restore_ ATOLL_GUARDED_BY(mutex_);
  bool has_purged_ ATOLL_GUARDED_BY(mutex_) = false;  // Its files are still to be removed.
  std::map<Digest, Time> purged_ ATOLL_GUARDED_BY(mutex_);
  std::map<uint64_t, Question> questions_ ATOLL_GUARDED_BY(mutex_);  // By number.
  std::deque<Put> puts_ ATOLL_GUARDED_BY(mutex_);  // The first one is under way if `sent_`.
  std::optional<Time> sent_ ATOLL_GUARDED_BY(mutex_);
  Time next_send_ ATOLL_GUARDED_BY(mutex_){};
  double speed_ ATOLL_GUARDED_BY(mutex_) = 0;
  FetchRates fetch_rates_ ATOLL_GUARDED_BY(mutex_);
  Time last_answer_ ATOLL_GUARDED_BY(mutex_){};
  /// Of a layer of a chunk at each level, in bytes.
  std::vector<double> layer_bytes_ ATOLL_GUARDED_BY(mutex_);
  uint64_t last_number_ ATOLL_GUARDED_BY(mutex_);  // Random at first: nobody guesses the next one.
  std::thread keeper_;
  std::thread restorer_;
};

}  // namespace atl::serve
