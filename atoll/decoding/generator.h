#pragma once
// Who makes tokens, as those see it who ask for them: an API, a command. Behind it is a model in
// this process, or a chain of servers. Free of LibTorch.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/decoding/order.h"
#include "atoll/decoding/sampler.h"
#include "atoll/grammar/token_masks.h"

namespace atl::decoding {

/// One text to be continued, once: who wants n answers asks n times, with seeds of their own, and
/// the prompt is read once.
struct GenerationRequest {
  std::vector<int64_t> prompt;  // Ids; at least one.
  int64_t max_tokens = 128;     // 0: the prompt is only read (and scored).
  std::vector<int64_t> ends;  // The text ends before any of these; the id itself is no part of it.
  SamplerOptions sampler;
  std::map<int64_t, float> logit_bias;  // Added to these ids' logits before anything else.
  std::optional<int64_t> top_logprobs;  // Scores are wanted, with so many of the likeliest ids.
  bool scores_prompt = false;           // Those of the prompt's tokens too.
  /// Whose it is: what was read for one is not there for another, who could tell by the time.
  uint64_t tenant = 0;
  /// After so many seconds' worth of waiting, keys and values that were kept of its beginning may
  /// come rounded; infinity: never. Nothing: as the generator's owner says.
  std::optional<double> round_after = {};
  uint64_t adapter = 0;  // Of the generator's, by which the text is read: from 1 on. 0: none.
  std::shared_ptr<const grammar::TokenMasks> grammar;  // What the answer must be; null: anything.
};

enum class FinishReason {
  kStop,    // The model ended the text, or its listener did.
  kLength,  // max_tokens were made, or the context is full.
};
std::string name_of(FinishReason reason);  // "stop", "length", as OpenAI's API spells them.

/// Why a request is not taken, or not ended.
struct Refusal {
  enum class Kind {
    kInvalid,      // It can never be answered: too long, ids over the vocabulary.
    kBusy,         // Too many wait: later.
    kUnavailable,  // No chain of servers, a model that is damaged.
  };
  Kind kind = Kind::kInvalid;
  std::string message;     // What is wrong and what to do.
  Duration retry_after{};  // kBusy: when it may be worth it.
};

/// Hears what becomes of one request, from the generator's thread: it must not block, nor call the
/// generator. After
/// finished() or failed() it hears no more.
class Listener {
 public:
  /// Of a prompt's tokens those whose keys and values were there, and of them those of which some
  /// were rounded.
  struct Cached {
    int64_t num_tokens = 0;
    int64_t num_rounded = 0;
  };

  virtual ~Listener() = default;
  /// The prompt was read. `scores`, where they were asked for, are those of its tokens but the
  /// first, which follows from nothing.
  virtual void prompt_read(Cached cached, std::vector<TokenScore> scores) = 0;
  /// The next token. Scored where that was asked for; else it has its id alone. False: the text
  /// ends here, for a reason of the listener's (a stop string); finished() follows.
  virtual bool token(const TokenScore& score) = 0;
  /// The model ends the text by this id, which is no part of it. Scored where that was asked for;
  /// finished() follows.
  virtual void ended_by(const TokenScore& /*end*/) {}
  virtual void finished(FinishReason reason) = 0;
  virtual void failed(const Refusal& refusal) = 0;
};

/// What a model's mean hidden state over a text is asked for.
class EmbeddingListener {
 public:
  virtual ~EmbeddingListener() = default;
  virtual void embedded(std::vector<float> mean_C) = 0;
  virtual void failed(const Refusal& refusal) = 0;
};

/// Of one model, for pages and metrics.
struct GeneratorStatus {
  int64_t num_running = 0;  // Requests whose tokens are being made.
  int64_t num_waiting = 0;
  /// Of keys and values: in use, of all there are. Of chains of servers: what all of those have,
  /// whichever gateway's, and what the model that guesses has here.
  int64_t kv_bytes = 0;
  int64_t kv_capacity_bytes = 0;
  int64_t prompt_tokens = 0;  // Read since the start, without those that were cached.
  int64_t cached_tokens = 0;
  int64_t made_tokens = 0;
  int64_t drafted_tokens = 0;   // That were guessed, and verified with others,
  int64_t accepted_tokens = 0;  // of which so many were right.
  int64_t audited_tokens = 0;   // Of chains of servers: recomputed here, and compared.
  int64_t liars = 0;            // Servers that were found to compute something else.
  /// Of chains of servers: why they were changed under way, and how often.
  std::map<std::string, int64_t> recoveries;
};

/// Thread-safe.
class Generator {
 public:
  using Id = uint64_t;

  virtual ~Generator() = default;
  virtual int64_t context() const = 0;     // Tokens, of prompt and answer together.
  virtual int64_t vocab_size() const = 0;  // Ids are below it.
  /// `listener` is let go of when all is said. What is refused at once is said by failed() as well,
  /// before this returns.
  virtual Id generate(GenerationRequest request, std::shared_ptr<Listener> listener) = 0;
  virtual Id embed(std::vector<int64_t> text, uint64_t tenant,
                   std::shared_ptr<EmbeddingListener> listener) = 0;
  /// Nobody wants it any more: its listener hears nothing from when this returns. An id that is
  /// over is passed over.
  virtual void cancel(Id id) = 0;
  virtual GeneratorStatus status() const = 0;
  /// What was read for that tenant is kept no more, wherever that is; texts under way go on.
  virtual void purge(uint64_t /*tenant*/) {}
  /// Whether texts may ask for keys and values that were rounded (GenerationRequest::round_after).
  virtual bool may_round() const { return false; }
};

}  // namespace atl::decoding
