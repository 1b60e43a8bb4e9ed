#pragma once
// A generator without a model: its logits are a pure function of the last token, in which the byte
// that follows in ASCII is the likeliest ("abc" goes on with "defg"), and behind a full stop the
// end. For tokenizers whose ids 3 to 258 are the bytes (sample_llama_json). One thread makes the
// tokens of all texts, one of each in turn. Thread-safe.
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/decoding/draw.h"
#include "atoll/decoding/generator.h"

namespace atl::decoding {

struct FakeGeneratorOptions {
  int64_t context = 256;
  int64_t vocab_size = 300;
  int64_t max_running = 1000;  // More are refused: busy.
  Duration token_time{};       // That a token of all texts takes.
};

class FakeGenerator final : public Generator {
 public:
  static constexpr int64_t kFirstByte = 3;
  static constexpr int64_t kEnd = 2;

  explicit FakeGenerator(FakeGeneratorOptions options = {});
  ~FakeGenerator() override;

  int64_t context() const override { return options_.context; }
  int64_t vocab_size() const override { return options_.vocab_size; }
  Id generate(GenerationRequest request, std::shared_ptr<Listener> listener) override;
  Id embed(std::vector<int64_t> text, uint64_t tenant,
           std::shared_ptr<EmbeddingListener> listener) override;
  void cancel(Id id) override;
  GeneratorStatus status() const override;

  /// What the model finds of the token after `last`.
  std::vector<float> logits(int64_t last) const;
  /// The mean over a text of what stands for its ids.
  static std::vector<float> embedding(const std::vector<int64_t>& text);

 private:
  struct Text {
    GenerationRequest request;
    std::shared_ptr<Listener> listener;
    Draw draw;
    std::vector<int64_t> ids;
    bool is_read = false;
  };
  void work();
  /// Whether the text goes on.
  bool step(Text& text) ATOLL_REQUIRES(mutex_);
  void read(Text& text) ATOLL_REQUIRES(mutex_);
  std::vector<TokenScore> prompt_scores(const Text& text) const;

  const FakeGeneratorOptions options_;
  mutable Mutex mutex_;  // Held while listeners are told, so that who cancelled hears nothing.
  Condition changed_;
  std::map<Id, Text> texts_ ATOLL_GUARDED_BY(mutex_);
  std::vector<int64_t> last_prompt_ ATOLL_GUARDED_BY(mutex_);
  GeneratorStatus status_ ATOLL_GUARDED_BY(mutex_);
  Id last_id_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_ending_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::decoding
