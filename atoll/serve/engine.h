#pragma once
// Texts of one model that are read together, pass after pass. A pass takes the newest token of each
// answer and, beside them, a part of the prompts that are still to be read, so that a long one
// holds nobody up. Keys and values lie in pages of a budget; what prompts have in common is read
// once. When pages run out, texts that nobody reads any more lose theirs, then the youngest of
// those under way, which is read anew later.
//
// On the CPU every token has the bits that it would have alone, whatever is read beside it
// (model/products.h, model/causal_attention.h). So what a text seems to go on with, for its last
// tokens were in it before, is read in the same pass as its newest token: what of it is right saves
// passes, and what is wrong changes nothing. Owned by one thread.
//
// Shapes: T = tokens of a pass, W = those of which something is wanted, C = hidden size.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/decoding/generator.h"
#include "atoll/decoding/pass_guesses.h"
#include "atoll/model/model.h"
#include "atoll/serve/guessed_text.h"
#include "atoll/serve/kv_desk.h"
#include "atoll/serve/prefix_cache.h"
#include "atoll/serve/sequence.h"

namespace atl::serve {

/// Where keys and values of texts are kept when they are over, and by what names.
struct KeptTexts {
  KvDesk* desk = nullptr;             // Outlives who uses it.
  std::vector<kv::ChunkNames> names;  // By adapter (GenerationRequest::adapter).
};

struct EngineOptions {
  int64_t kv_bytes = int64_t{1} << 30;  // For keys and values.
  int64_t max_running = 64;             // Texts in a pass.
  int64_t prompt_tokens = 256;          // Of prompts, in a pass.
  int64_t max_guesses = 16;             // In a pass, of all texts; on devices there are none.
  /// By which texts may ask to be read (GenerationRequest::adapter): of all the model's layers.
  std::vector<std::shared_ptr<const model::Adapter>> adapters = {};
  std::optional<KeptTexts> kept = {};
};

/// Pages for the keys and values of the layers that the model was loaded with. Throws UsageError
/// where the budget holds none.
std::shared_ptr<model::KvPool> pool_of(const model::Model& model, int64_t bytes);

/// How much a pass reads of each text, by how much of it is unread: all of those that lack `few`
/// tokens or fewer, and of the others the first ones, `prompt_tokens` at most in all. Pure.
std::vector<int64_t> plan_pass(std::span<const int64_t> num_unread, int64_t prompt_tokens,
                               int64_t few = 1);

class Engine {
 public:
  /// The model outlives it. Throws UsageError where the budget holds no page.
  Engine(const model::Model& model, const EngineOptions& options);

  /// Tokens that a text may have.
  int64_t context() const { return context_; }
  int64_t vocab_size() const { return model_.config().vocab_size; }
  int64_t num_waiting() const { return std::ssize(waiting_); }
  bool is_idle() const { return running_.empty() && waiting_.empty(); }
  decoding::GeneratorStatus status() const;

  /// Behind those that wait; has tokens, at most context().
  void add(std::unique_ptr<Sequence> sequence) {
    waiting_.push_back({GuessedText(std::move(sequence)), model::KvCache(pool_)});
  }
  /// Nobody wants these any more; what read() has for them is not given.
  void drop(const std::set<Sequence::Id>& ids);
  /// What was read for that tenant is kept no more.
  void purge(uint64_t tenant);
  /// The same of what its desk keeps. Thread-safe, and done when it returns.
  void purge_kept(uint64_t tenant) const;
  /// All texts fail with that reason.
  void end(const std::string& reason);
  /// One pass. Says nothing to anybody.
  void read();
  /// Gives the sequences what the pass has for them; lets go of those that want no more.
  void give();

 private:
  struct Text {
    GuessedText guessed;
    model::KvCache cache;
    bool was_sought = false;  // Among those that are kept.
    bool is_private = false;  // Nothing of it is kept.

    Sequence& sequence() const { return guessed.sequence(); }
    /// With its guesses.
    int64_t length() const { return guessed.length(); }
    int64_t num_unread() const { return length() - cache.length(); }
  };
  /// The text that was over last: to its last token, where PrefixCache has full pages.
  struct Rest {
    uint64_t tenant;
    uint64_t adapter;
    std::vector<int64_t> tokens;  // Whose keys and values are there.
    model::KvCache cache;
  };
  using Texts = std::deque<Text>;
  /// What a pass has for one of those that run; none once it was dropped.
  struct Found {
    Sequence::Id id;
    int64_t begin;   // The first position that it read,
    int64_t wanted;  // of which something is wanted.
    at::Tensor hidden_WC;
  };

  struct Given {
    bool is_done = false;   // It wants no more.
    bool is_wrong = false;  // A guess was, so that the rows behind it are nobody's.
  };

  void admit();
  const model::Adapter* adapter_of(const Text& text) const;
  bool shares_unread_beginning(const Text& text) const;
  bool has_steady_keys(int64_t length) const;
  bool make_room(int64_t num_pages);
  model::KvCache beginning_of(const Text& text);
  void guess();
  bool forget_guesses();
  /// How much each of those that run is to read; there is room for that.
  std::vector<int64_t> prepare();
  void remember(const Text& text, int64_t begin);
  void seek(Text& text);
  void keep(const Text& text, int64_t begin) const;
  Given give(Text& text, int64_t position, const at::Tensor& rows);
  void rest(Text& text);
  static void refuse(Texts& texts, const std::string& reason);

  const model::Model& model_;
  const EngineOptions options_;
  const std::shared_ptr<model::KvPool> pool_;
  const int64_t context_;
  std::vector<PrefixCache> prefixes_;  // Of the model alone, then of each adapter's texts.
  std::optional<Rest> rest_;
  Texts running_, waiting_;  // In the order in which they came.
  std::vector<Found> found_;
  std::string trouble_;         // Why there was no pass.
  const SystemClock clock_;     // Says how many guesses are made, and nothing of what is.
  Time began_{};                // The pass.
  int64_t num_guessed_ = 0;     // In it.
  bool reads_prompts_ = false;  // It does.
  decoding::GuessCost guess_cost_;
  decoding::GeneratorStatus counts_;
};

}  // namespace atl::serve
