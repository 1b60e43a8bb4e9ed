// A pass of an Engine: what is read in it, and what becomes of what was.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/serve/engine.h"
#include "atoll/serve/row_batches.h"

namespace atl::serve {
namespace {

constexpr int64_t kPositions = model::KvPool::kPagePositions;

}  // namespace

/// What those of which only the newest token is unread are likely to go on with. Not where keys
/// hang on the text's length, which a wrong guess makes longer than it is.
void Engine::guess() {
  const int64_t num_texts = std::max<int64_t>(std::ssize(running_), 1);
  const int64_t most = model_.device().is_cpu() ? options_.max_guesses / num_texts : 0;
  if (most == 0 || guess_cost_.wants_plain_pass(num_texts)) return;
  // A guess makes the pass longer for all of them, and is worth something to one.
  const double cost = guess_cost_.value() * static_cast<double>(num_texts);
  for (Text& text : running_) {
    if (text.num_unread() != 1 || !has_steady_keys(text.length() + most)) continue;
    text.guessed.guess_for_pass(most, cost);
  }
}

/// Whether there were some: they are no must.
bool Engine::forget_guesses() {
  bool were_some = false;
  for (Text& text : running_) {
    were_some = were_some || text.guessed.num_guesses() > 0;
    text.guessed.forget_guesses();
  }
  return were_some;
}

std::vector<int64_t> Engine::prepare() {
  while (true) {
    std::vector<int64_t> num_unread;
    for (const Text& text : running_) num_unread.push_back(text.num_unread());
    const int64_t few = 1 + options_.max_guesses;
    std::vector<int64_t> counts = plan_pass(num_unread, options_.prompt_tokens, few);
    for (size_t i = 0; i < running_.size(); ++i) {
      // Where keys hang on the text's length, its tokens are read together: by parts, those of a
      // part would be a shorter text's, and forget_other_keys() would begin anew with each.
      const Text& text = running_[i];
      const bool crosses = has_steady_keys(text.cache.length()) && !has_steady_keys(text.length());
      if (crosses) counts[i] = num_unread[i];
    }
    size_t ready = 0;
    for (; ready < running_.size(); ++ready) {
      model::KvCache& cache = running_[ready].cache;
      if (!make_room(cache.num_lacking(counts[ready])) || !cache.prepare(counts[ready])) break;
    }
    if (ready == running_.size()) return counts;
    if (forget_guesses()) continue;
    // The youngest gives way to the others, and reads its text anew.
    running_.back().cache = model::KvCache(pool_);
    waiting_.push_front(std::move(running_.back()));
    running_.pop_back();
  }
}

void Engine::read() {
  const at::NoGradGuard no_grad;
  began_ = clock_.now();
  num_guessed_ = 0;
  reads_prompts_ = false;
  admit();
  for (Text& text : running_) model_.forget_other_keys(text.cache, text.length());
  guess();
  const std::vector<int64_t> counts = prepare();
  std::vector<int64_t> tokens;
  std::vector<model::CachedRow> rows;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (counts[i] == 0) continue;
    Text& text = running_[i];
    const int64_t begin = text.cache.length();
    const auto unread = std::span(text.guessed.ids())
                            .subspan(static_cast<size_t>(begin), static_cast<size_t>(counts[i]));
    found_.push_back({.id = text.sequence().id(),
                      .begin = begin,
                      .wanted = std::max(text.sequence().wanted_from(), begin),
                      .hidden_WC = {}});
    tokens.insert(tokens.end(), unread.begin(), unread.end());
    rows.push_back({&text.cache, counts[i], adapter_of(text)});
    const int64_t num_guesses = text.guessed.num_guesses();
    num_guessed_ += num_guesses;
    if (begin > 0 && counts[i] == 1 + num_guesses) continue;
    counts_.prompt_tokens += counts[i];
    reads_prompts_ = true;
  }
  counts_.drafted_tokens += num_guessed_;
  if (rows.empty()) return;
  try {
    const at::Tensor hidden_TC = model_.hidden_1TC(tensor_1T(tokens).to(model_.device()), rows)[0];
    int64_t first = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      Found& found = found_[i];
      const int64_t skipped = std::min(found.wanted - found.begin, rows[i].num_tokens);
      found.hidden_WC = hidden_TC.narrow(0, first + skipped, rows[i].num_tokens - skipped);
      first += rows[i].num_tokens;
    }
  } catch (const std::exception& error) {
    found_.clear();
    trouble_ = error.what();
  }
}

/// What was read since it had that length, and is no guess.
void Engine::remember(const Text& text, int64_t begin) {
  const int64_t length = text.cache.length();
  const bool has_filled = length / kPositions > begin / kPositions;
  if (!has_filled || text.is_private || !has_steady_keys(text.length())) return;
  prefixes_.at(text.sequence().adapter())
      .add(text.sequence().tenant(),
           std::span(text.sequence().tokens()).first(static_cast<size_t>(length)),
           std::span(text.cache.pages()).first(static_cast<size_t>(length / kPositions)));
  keep(text, begin);
}

/// It is over.
void Engine::rest(Text& text) {
  const int64_t length = text.cache.length();
  if (text.is_private || length == 0 || !has_steady_keys(text.length())) return;
  const std::vector<int64_t>& tokens = text.sequence().tokens();
  rest_.emplace(Rest{.tenant = text.sequence().tenant(),
                     .adapter = text.sequence().adapter(),
                     .tokens = {tokens.begin(), tokens.begin() + length},
                     .cache = std::move(text.cache)});
}

void Engine::give() {
  if (!trouble_.empty()) refuse(running_, std::exchange(trouble_, {}));
  std::vector<Text*> texts;
  std::vector<HiddenRows> rows;
  const std::vector<Found> all = std::exchange(found_, {});
  auto text = running_.begin();
  for (const Found& found : all) {  // In the order of those that run.
    while (text->sequence().id() != found.id) ++text;
    texts.push_back(&*text);
    rows.push_back({.position = found.wanted,
                    .hidden_WC = found.hidden_WC,
                    .as_logits = text->sequence().wants_logits()});
  }
  std::set<Sequence::Id> done;
  give_rows(model_, rows, [&](size_t index, int64_t position, const at::Tensor& values) {
    const Given given = give(*texts[index], position, values);
    if (given.is_done) done.insert(texts[index]->sequence().id());
    return !given.is_done && !given.is_wrong;
  });
  for (size_t i = 0; i < texts.size(); ++i) {
    remember(*texts[i], all[i].begin);
    if (done.contains(all[i].id)) rest(*texts[i]);
  }
  const bool is_usual = !rows.empty() && !reads_prompts_;
  if (is_usual) guess_cost_.note(std::ssize(rows), num_guessed_, seconds(clock_.now() - began_));
  drop(done);
}

/// Of these rows those that are behind what it is.
Engine::Given Engine::give(Text& text, int64_t position, const at::Tensor& rows) {
  const Sequence& sequence = text.sequence();
  const int64_t length = std::ssize(sequence.tokens());
  Given given;
  try {
    for (int64_t i = 0; i < rows.size(0) && !given.is_done && !given.is_wrong; ++i) {
      const auto taken =
          text.guessed.take(position + i, sequence.follow(position + i, rows[i]), began_);
      given = {.is_done = taken.is_done, .is_wrong = taken.was_wrong};
      counts_.accepted_tokens += taken.was_right ? 1 : 0;
      // What was read behind it was a guess.
      if (given.is_done || given.is_wrong) text.cache.truncate(position + i + 1);
    }
  } catch (const InputError& error) {
    text.sequence().fail({.kind = decoding::Refusal::Kind::kUnavailable, .message = error.what()});
    given.is_done = true;
    text.is_private = true;  // Nothing of it is to be built upon.
  }
  counts_.made_tokens += std::ssize(sequence.tokens()) - length;
  return given;
}

}  // namespace atl::serve
