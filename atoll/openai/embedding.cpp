#include "atoll/openai/embedding.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "atoll/base/base64.h"
#include "atoll/base/mutex.h"

namespace atl::openai {
namespace {

constexpr Duration kGlance = std::chrono::milliseconds(100);  // Whether the client has gone.

/// Where the generator's thread leaves what it found.
class Collected {
 public:
  explicit Collected(size_t count) : found_(count) {}

  void put(size_t index, std::vector<float> mean_C) {
    const MutexLock lock(mutex_);
    found_[index] = std::move(mean_C);
    ++num_found_;
    changed_.notify_one();
  }
  void fail(const decoding::Refusal& refusal) {
    const MutexLock lock(mutex_);
    if (!refusal_) refusal_ = refusal;
    changed_.notify_one();
  }
  /// Whether all is there, within that patience.
  bool wait(Duration patience) {
    MutexLock lock(mutex_);
    changed_.wait_for(lock, patience, [&]() ATOLL_REQUIRES(mutex_) {
      return refusal_.has_value() || num_found_ == found_.size();
    });
    if (refusal_) throw error_of(*refusal_);
    return num_found_ == found_.size();
  }
  std::vector<std::vector<float>> take() {
    const MutexLock lock(mutex_);
    return std::move(found_);
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::vector<std::vector<float>> found_ ATOLL_GUARDED_BY(mutex_);
  size_t num_found_ ATOLL_GUARDED_BY(mutex_) = 0;
  std::optional<decoding::Refusal> refusal_ ATOLL_GUARDED_BY(mutex_);
};

class CollectingListener final : public decoding::EmbeddingListener {
 public:
  CollectingListener(std::shared_ptr<Collected> collected, size_t index)
      : collected_(std::move(collected)), index_(index) {}
  void embedded(std::vector<float> mean_C) override { collected_->put(index_, std::move(mean_C)); }
  void failed(const decoding::Refusal& refusal) override { collected_->fail(refusal); }

 private:
  const std::shared_ptr<Collected> collected_;
  const size_t index_;
};

/// What was asked for, and is not wanted any more when this goes.
struct Asked {
  decoding::Generator& generator;
  std::vector<decoding::Generator::Id> ids;
  ~Asked() {
    for (const auto id : ids) generator.cancel(id);
  }
};

std::string bytes_of(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(values.size() * sizeof(float), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

EmbeddingRequest read_embedding(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  EmbeddingRequest request;
  request.model = fields.required_text("model");
  request.inputs = read_prompts(fields.required("input"), "input", limits.max_inputs);
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    refuse("encoding_format", "'encoding_format' must be \"float\" or \"base64\"");
  }
  request.is_base64 = format == "base64";
  fields.refuse_if_there("dimensions");
  fields.pass_over({"user"});
  fields.refuse_unknown();
  return request;
}

Json embedding_reply(const EmbeddingRequest& request, const std::vector<std::vector<float>>& found,
                     int64_t num_tokens) {
  Json data = Json::array();
  for (size_t i = 0; i < found.size(); ++i) {
    data.push_back(
        {{"object", "embedding"},
         {"index", i},
         {"embedding", request.is_base64 ? Json(to_base64(bytes_of(found[i]))) : Json(found[i])}});
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", request.model},
          {"usage", {{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}}}};
}

std::vector<std::vector<float>> embed(const ServedModel& model, const std::vector<PromptIds>& texts,
                                      uint64_t tenant, const std::function<bool()>& has_gone) {
  const auto collected = std::make_shared<Collected>(texts.size());
  Asked asked{*model.generator, {}};
  for (size_t i = 0; i < texts.size(); ++i) {
    asked.ids.push_back(model.generator->embed(texts[i].ids, tenant,
                                               std::make_shared<CollectingListener>(collected, i)));
  }
  while (!collected->wait(kGlance)) {
    if (has_gone()) return {};
  }
  return collected->take();
}

}  // namespace atl::openai
