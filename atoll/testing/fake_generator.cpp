#include "atoll/testing/fake_generator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::decoding {

FakeGenerator::FakeGenerator(FakeGeneratorOptions options) : options_(options) {
  thread_ = std::thread([this] { work(); });
}

FakeGenerator::~FakeGenerator() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<float> FakeGenerator::logits(int64_t last) const {
  static const uint64_t kStream = random_stream("fake");
  std::vector<float> logits_V(static_cast<size_t>(options_.vocab_size));
  for (size_t id = 0; id < logits_V.size(); ++id) {
    logits_V[id] = static_cast<float>(4 * random_uniform(static_cast<uint64_t>(last), kStream, id));
  }
  const bool is_byte = last >= kFirstByte && last < kFirstByte + 255;
  const int64_t next = last == kFirstByte + '.' ? kEnd : is_byte ? last + 1 : kFirstByte + 'a';
  logits_V[static_cast<size_t>(next)] += 8;
  return logits_V;
}

std::vector<float> FakeGenerator::embedding(const std::vector<int64_t>& text) {
  static const uint64_t kStream = random_stream("fake embedding");
  std::vector<float> mean_C(8);
  for (size_t c = 0; c < mean_C.size(); ++c) {
    double sum = 0;
    for (const int64_t id : text) sum += random_uniform(static_cast<uint64_t>(id), kStream, c);
    mean_C[c] = static_cast<float>(sum / static_cast<double>(text.size()));
  }
  return mean_C;
}

std::vector<TokenScore> FakeGenerator::prompt_scores(const Text& text) const {
  std::vector<TokenScore> scores;
  if (!text.request.scores_prompt) return scores;
  const std::vector<int64_t>& ids = text.request.prompt;
  for (size_t i = 1; i < ids.size(); ++i) {
    scores.push_back(score_of(logits(ids[i - 1]), ids[i], text.request.top_logprobs.value_or(0)));
  }
  return scores;
}

void FakeGenerator::read(Text& text) {
  const std::vector<int64_t>& prompt = text.request.prompt;
  const auto same = std::ranges::mismatch(prompt, last_prompt_).in1 - prompt.begin();
  const int64_t num_cached = std::min<int64_t>(same, std::ssize(prompt) - 1);
  last_prompt_ = prompt;
  text.ids = prompt;
  text.is_read = true;
  status_.cached_tokens += num_cached;
  status_.prompt_tokens += std::ssize(prompt) - num_cached;
  text.listener->prompt_read({.num_tokens = num_cached}, prompt_scores(text));
}

bool FakeGenerator::step(Text& text) {
  if (!text.is_read) {
    read(text);
    if (text.request.max_tokens > 0) return true;
    text.listener->finished(FinishReason::kLength);
    return false;
  }
  const GenerationRequest& request = text.request;
  std::vector<float> logits_V = logits(text.ids.back());
  const TokenScore score = follow(text.draw.order(std::ssize(text.ids)), logits_V).score;
  if (text.draw.is_end(score.id)) {
    text.listener->ended_by(score);
    text.listener->finished(FinishReason::kStop);
    return false;
  }
  text.draw.add(score.id);
  text.ids.push_back(score.id);
  ++status_.made_tokens;
  const bool goes_on = text.listener->token(score) && !text.draw.is_over();
  const int64_t num_made = std::ssize(text.ids) - std::ssize(request.prompt);
  const bool is_full = num_made == request.max_tokens || std::ssize(text.ids) == options_.context;
  if (goes_on && !is_full) return true;
  text.listener->finished(goes_on ? FinishReason::kLength : FinishReason::kStop);
  return false;
}

void FakeGenerator::work() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return is_ending_ || !texts_.empty(); });
    if (is_ending_) return;
    for (auto text = texts_.begin(); text != texts_.end();) {
      bool goes_on = false;
      try {
        goes_on = step(text->second);
      } catch (const InputError& error) {
        text->second.listener->failed(
            {.kind = Refusal::Kind::kUnavailable, .message = error.what()});
      }
      text = goes_on ? std::next(text) : texts_.erase(text);
    }
    if (options_.token_time > Duration{}) {
      changed_.wait_for(lock, options_.token_time,
                        [&]() ATOLL_REQUIRES(mutex_) { return is_ending_; });
    } else {  // Others have their turn.
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

Generator::Id FakeGenerator::generate(GenerationRequest request,
                                      std::shared_ptr<Listener> listener) {
  const MutexLock lock(mutex_);
  if (std::ssize(texts_) >= options_.max_running) {
    listener->failed({.kind = Refusal::Kind::kBusy,
                      .message = "too many texts are made",
                      .retry_after = std::chrono::seconds(3)});
    return ++last_id_;
  }
  Draw draw(request, options_.vocab_size);
  texts_.emplace(++last_id_, Text{.request = std::move(request),
                                  .listener = std::move(listener),
                                  .draw = std::move(draw)});
  changed_.notify_all();
  return last_id_;
}

Generator::Id FakeGenerator::embed(std::vector<int64_t> text, uint64_t /*tenant*/,
                                   std::shared_ptr<EmbeddingListener> listener) {
  listener->embedded(embedding(text));
  const MutexLock lock(mutex_);
  return ++last_id_;
}

void FakeGenerator::cancel(Id id) {
  const MutexLock lock(mutex_);
  texts_.erase(id);
}

GeneratorStatus FakeGenerator::status() const {
  const MutexLock lock(mutex_);
  GeneratorStatus status = status_;
  status.num_running = std::ssize(texts_);
  return status;
}

}  // namespace atl::decoding
