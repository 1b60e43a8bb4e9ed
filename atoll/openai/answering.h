#pragma once
// One request while it is answered: it waits for its turn, has its texts made, and gives them the
// shape that its client reads. For the thread that answers; when it goes what is not finished is
// cancelled.
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/http_server.h"
#include "atoll/openai/admission.h"
#include "atoll/openai/answer.h"
#include "atoll/openai/mailbox.h"
#include "atoll/openai/metrics.h"
#include "atoll/openai/served_model.h"

namespace atl::openai {

/// Texts that are wanted, and how they are answered.
struct TextWork {
  std::vector<decoding::GenerationRequest> texts;  // One for each choice.
  std::vector<PromptIds> prompts;
  size_t choices_per_prompt = 1;
  std::vector<std::string> stops;
  bool echo = false;
  bool shows_end = false;  // The id by which the model ends a text is told with its score.
  bool stream = false;
  std::unique_ptr<Shape> shape;
  std::string id;
};

class Answering {
 public:
  /// What all requests share; it outlives them.
  struct Shared {
    const Clock& clock;
    Metrics& metrics;
    Duration ping_interval;
  };
  using HasGone = std::function<bool()>;

  Answering(const ServedModel& model, TextWork work, std::unique_ptr<Admission::Place> place,
            Shared shared, HasGone has_gone);
  ~Answering();
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  /// All of it; null when the client has gone. Throws ApiError.
  Json whole();
  /// Waits until something comes, so that what is refused is refused in place of a stream, but not
  /// for longer than a ping's interval. Throws ApiError.
  void begin();
  void stream(net::HttpSink& sink);

 private:
  /// What comes within a moment, noted in the answer.
  std::optional<Event> next(Duration patience);
  void start();
  void note(const Event& event);
  void note_piece(Choice& choice, const Piece& piece);
  void note_time(const Event& event);
  std::string text_of(const Event& event);

  const ServedModel& model_;
  TextWork work_;
  const std::unique_ptr<Admission::Place> place_;
  const Shared shared_;
  const HasGone has_gone_;
  const Time came_;
  std::map<size_t, int64_t> num_rounded_;  // By prompt.
  Answer answer_;
  std::optional<Event> first_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::vector<decoding::Generator::Id> running_;
  std::vector<std::optional<Time>> last_tokens_;  // Of each choice.
  bool has_first_token_ = false;
};

}  // namespace atl::openai
