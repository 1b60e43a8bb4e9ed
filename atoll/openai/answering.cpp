#include "atoll/openai/answering.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace atl::openai {
namespace {

/// How often it is asked whether the client has gone.
constexpr Duration kGlance = std::chrono::milliseconds(100);

/// One choice's, on the generator's thread.
class TextListener final : public decoding::Listener {
 public:
  TextListener(std::shared_ptr<Mailbox> mailbox, size_t choice, GrowingText text,
               std::optional<PromptIds> repeated, bool shows_end, const Clock& clock)
      : mailbox_(std::move(mailbox)),
        choice_(choice),
        text_(std::move(text)),
        repeated_(std::move(repeated)),
        shows_end_(shows_end),
        clock_(clock) {}

  void prompt_read(Cached cached, std::vector<decoding::TokenScore> scores) override {
    put(PromptRead{cached, repeated_ ? text_.repeat(*repeated_, scores) : Piece{}});
  }
  bool token(const decoding::TokenScore& score) override {
    put(TokenMade{text_.add(score)});
    return !text_.is_stopped();
  }
  void ended_by(const decoding::TokenScore& end) override {
    if (shows_end_) text_.add_end(end);
  }
  void finished(decoding::FinishReason reason) override {
    if (text_.is_stopped()) reason = decoding::FinishReason::kStop;
    put(TextEnded{text_.finish(), reason});
  }
  void failed(const decoding::Refusal& refusal) override { put(refusal); }

 private:
  void put(auto what) { mailbox_->put({choice_, clock_.now(), std::move(what)}); }

  const std::shared_ptr<Mailbox> mailbox_;
  const size_t choice_;
  GrowingText text_;
  const std::optional<PromptIds> repeated_;
  const bool shows_end_;
  const Clock& clock_;
};

}  // namespace

Answering::Answering(const ServedModel& model, TextWork work,
                     std::unique_ptr<Admission::Place> place, Shared shared, HasGone has_gone)
    : model_(model),
      work_(std::move(work)),
      place_(std::move(place)),
      shared_(shared),
      has_gone_(std::move(has_gone)),
      came_(shared.clock.now()) {
  answer_ = {.id = work_.id,
             .created = static_cast<int64_t>(wall_time()),
             .model = model.name,
             .seed = work_.texts.empty() ? 0 : static_cast<int64_t>(work_.texts[0].sampler.seed),
             .choices = std::vector<Choice>(work_.texts.size())};
  for (const PromptIds& prompt : work_.prompts) answer_.prompt_tokens += std::ssize(prompt.ids);
  last_tokens_.resize(work_.texts.size());
}

Answering::~Answering() {
  for (const auto id : running_) model_.generator->cancel(id);
  shared_.metrics.add_request(shared_.clock.now() - came_);
}

void Answering::start() {
  shared_.metrics.add_wait(shared_.clock.now() - came_);
  for (size_t i = 0; i < work_.texts.size(); ++i) {
    const PromptIds& prompt = work_.prompts[i / work_.choices_per_prompt];
    auto listener = std::make_shared<TextListener>(
        mailbox_, i, GrowingText(*model_.tokenizer, work_.stops),
        work_.echo ? std::optional(prompt) : std::nullopt, work_.shows_end, shared_.clock);
    running_.push_back(model_.generator->generate(std::move(work_.texts[i]), std::move(listener)));
  }
}

std::optional<Event> Answering::next(Duration patience) {
  if (running_.empty()) {
    const Time begin = shared_.clock.now();
    if (!place_->wait(patience)) return std::nullopt;
    start();
    patience = std::max(patience - (shared_.clock.now() - begin), Duration{});
  }
  auto event = mailbox_->take(patience);
  if (!event) return std::nullopt;
  if (const auto* refusal = std::get_if<decoding::Refusal>(&event->what)) throw error_of(*refusal);
  note(*event);
  return event;
}

void Answering::note(const Event& event) {
  Choice& choice = answer_.choices[event.choice];
  if (const auto* read = std::get_if<PromptRead>(&event.what)) {
    if (event.choice % work_.choices_per_prompt == 0) {
      answer_.cached_tokens += read->cached.num_tokens;
    }
    // Of each prompt the most that any of its choices began with.
    int64_t& known = num_rounded_[event.choice / work_.choices_per_prompt];
    const int64_t more = std::max<int64_t>(read->cached.num_rounded - known, 0);
    known += more;
    answer_.lossy_tokens += more;
    note_piece(choice, read->repeated);
  } else if (const auto* made = std::get_if<TokenMade>(&event.what)) {
    ++answer_.made_tokens;
    note_time(event);
    note_piece(choice, made->piece);
  } else if (const auto* ended = std::get_if<TextEnded>(&event.what)) {
    note_piece(choice, ended->rest);
    choice.reason = ended->reason;
  }
}

void Answering::note_piece(Choice& choice, const Piece& piece) {
  choice.text += piece.text;
  // Streams have given them away already.
  if (!work_.stream) {
    choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  }
}

void Answering::note_time(const Event& event) {
  if (!std::exchange(has_first_token_, true)) shared_.metrics.add_first_token(event.when - came_);
  auto& last = last_tokens_[event.choice];
  if (last) shared_.metrics.add_gap(event.when - *last);
  last = event.when;
}

Json Answering::whole() {
  while (!answer_.is_finished()) {
    if (!next(kGlance) && has_gone_()) return {};
  }
  return work_.shape->whole(answer_);
}

void Answering::begin() {
  const Time end = shared_.clock.now() + shared_.ping_interval;
  while (!first_ && shared_.clock.now() < end && !has_gone_()) first_ = next(kGlance);
}

std::string Answering::text_of(const Event& event) {
  Shape& shape = *work_.shape;
  if (const auto* read = std::get_if<PromptRead>(&event.what)) {
    return shape.piece(answer_, event.choice, read->repeated);
  }
  if (const auto* made = std::get_if<TokenMade>(&event.what)) {
    return shape.piece(answer_, event.choice, made->piece);
  }
  const auto& ended = std::get<TextEnded>(event.what);
  return shape.piece(answer_, event.choice, ended.rest) + shape.end_of(answer_, event.choice);
}

void Answering::stream(net::HttpSink& sink) {
  Shape& shape = *work_.shape;
  if (!sink.write(shape.begin(answer_))) return;
  if (first_ && !sink.write(text_of(*first_))) return;
  Time last = shared_.clock.now();
  try {
    while (!answer_.is_finished()) {
      const auto event = next(kGlance);
      const bool is_late = shared_.clock.now() - last >= shared_.ping_interval;
      const std::string text = event ? text_of(*event) : is_late ? ": ping\n\n" : "";
      if (!text.empty()) last = shared_.clock.now();
      if (!sink.write(text) || (!event && has_gone_())) return;
    }
    sink.write(shape.end(answer_));
  } catch (const ApiError& error) {
    sink.write(shape.failed(answer_, error));
  }
}

}  // namespace atl::openai
