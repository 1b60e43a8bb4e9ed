#pragma once
// What is answered so far, and how it becomes what clients read: one shape for each kind of
// request. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/decoding/generator.h"
#include "atoll/openai/growing_text.h"

namespace atl::openai {

struct Choice {
  std::string text;
  std::vector<TextToken> tokens;
  std::optional<decoding::FinishReason> reason;  // Nothing yet: it grows.
};

struct Answer {
  std::string id;       // "cmpl-...": unique.
  int64_t created = 0;  // Seconds since 1970.
  std::string model;
  int64_t seed = 0;  // That choice i was drawn with is i more.
  std::vector<Choice> choices;
  int64_t prompt_tokens = 0;  // Each prompt once, whatever n is.
  int64_t cached_tokens = 0;
  int64_t lossy_tokens = 0;  // Of those, that came rounded.
  int64_t made_tokens = 0;

  bool is_finished() const;
};

/// {"cached_tokens": N}, and "lossy_tokens" where there are some.
Json cached_of(const Answer& answer);

/// {"prompt_tokens", ...}, as completions and chats have it.
Json usage_of(const Answer& answer);

/// A server-sent event: of a `kind` where it has one.
std::string sse(const Json& data, const std::string& kind = "");

/// JSON with U+FFFD for what is no UTF-8.
std::string dump(const Json& json);

class Shape {
 public:
  virtual ~Shape() = default;
  /// All at once.
  virtual Json whole(const Answer& answer) = 0;
  /// As a stream: events before all pieces, of a piece of a choice, of its end, behind all.
  virtual std::string begin(const Answer& answer) = 0;
  virtual std::string piece(const Answer& answer, size_t choice, const Piece& piece) = 0;
  virtual std::string end_of(const Answer& answer, size_t choice) = 0;
  virtual std::string end(const Answer& answer) = 0;
  /// In the place of what is left.
  virtual std::string failed(const Answer& answer, const ApiError& error);
};

}  // namespace atl::openai
