#include "atoll/serve/likelihood.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/serve/sequence.h"
#include "atoll/serve/shared_texts.h"
#include "atoll/train/evaluate.h"

namespace atl::serve {
namespace {

constexpr int64_t kBatchTokens = 4096;
// Endings are read side by side, at least so many tokens at a time where there are so many...
constexpr int64_t kPassTokens = 512;
// ... and as far as their caches stay below so many positions: each of one context needs its own.
constexpr int64_t kCachePositions = 8192;

/// What the model reads, and for each the requests whose continuations end behind it. Sorted;
/// requests that differ in their last token alone (answers like A, B, C) share a text.
struct Texts {
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<size_t>> requests;
  std::vector<int64_t> num_scored;  // Behind so many of its last ids something is scored.
};

Texts texts_of(std::span<const tasks::TokenRequest> requests) {
  std::map<std::vector<int64_t>, std::vector<size_t>> by_ids;
  for (size_t place = 0; place < requests.size(); ++place) {
    const tasks::TokenRequest& request = requests[place];
    ATOLL_CHECK(!request.context.empty() && !request.continuation.empty());
    std::vector<int64_t> ids = request.context;
    ids.insert(ids.end(), request.continuation.begin(), request.continuation.end() - 1);
    by_ids[std::move(ids)].push_back(place);
  }
  Texts texts;
  for (auto& [ids, same] : by_ids) {
    const auto count = [&](size_t place) { return std::ssize(requests[place].continuation); };
    texts.num_scored.push_back(count(*std::ranges::max_element(same, {}, count)));
    texts.ids.push_back(ids);
    texts.requests.push_back(std::move(same));
  }
  return texts;
}

/// Those that are read in one pass each for what they share and for each of their endings.
class Reading {
 public:
  Reading(const SharedTexts& group, const Texts& texts) : group_(group), next_(group.begin) {
    for (size_t i = group.begin; i < group.end; ++i) {
      const int64_t length = std::ssize(texts.ids[i]);
      longest_ = std::max(longest_, length);
      num_shared_scored_ =
          std::max(num_shared_scored_, texts.num_scored[i] - (length - group.num_shared));
    }
  }

  const SharedTexts& group() const { return group_; }
  bool is_alone() const { return group_.end - group_.begin == 1; }
  int64_t num_texts() const { return static_cast<int64_t>(group_.end - group_.begin); }
  /// Positions that a cache needs, and the most tokens of an ending.
  int64_t longest() const { return longest_; }
  int64_t longest_ending() const { return longest_ - group_.num_shared; }
  /// Behind so many of the last shared tokens something is scored.
  int64_t num_shared_scored() const { return num_shared_scored_; }

  bool is_done() const { return next_ == group_.end; }
  size_t take() { return next_++; }

  std::vector<model::KvCache> caches;  // One for each ending that is read in a pass.
  at::Tensor shared_TC;    // Hidden states of what is shared, as far as they are scored.
  int64_t shared_end = 0;  // Their end among the rows that are scored next.

 private:
  SharedTexts group_;
  size_t next_;
  int64_t longest_ = 0;
  int64_t num_shared_scored_ = 0;
};

/// One pass of the model: stretches of texts, each behind what its cache holds.
class Pass {
 public:
  void add(std::span<const int64_t> ids, model::KvCache& cache) {
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    rows_.push_back({&cache, std::ssize(ids)});
  }
  /// Of each, the hidden states.
  std::vector<at::Tensor> run(const model::Model& model) const {
    const at::Tensor hidden_TC = model.hidden_1TC(tensor_1T(tokens_).to(model.device()), rows_)[0];
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (const model::CachedRow& row : rows_) {
      parts.push_back(hidden_TC.narrow(0, begin, row.num_tokens));
      begin += row.num_tokens;
    }
    return parts;
  }

 private:
  std::vector<int64_t> tokens_;
  std::vector<model::CachedRow> rows_;
};

class Reader {
 public:
  Reader(const model::Model& model, std::span<const tasks::TokenRequest> requests,
         const Texts& texts, const Progress& progress, int64_t num_tokens)
      : model_(model),
        requests_(requests),
        texts_(texts),
        progress_(progress),
        num_tokens_(num_tokens),
        results_(requests.size()) {}

  void read(std::span<const SharedTexts> groups) {
    std::vector<Reading> readings;
    for (const SharedTexts& group : groups) readings.emplace_back(group, texts_);
    read_beginnings(readings);
    std::erase_if(readings, [](const Reading& reading) { return reading.is_done(); });
    make_copies(readings);
    add_shared_rows(readings);
    while (!readings.empty()) {
      read_endings(readings);
      std::erase_if(readings, [](const Reading& reading) { return reading.is_done(); });
      if (num_rows_ < kBatchTokens) continue;
      score();
      add_shared_rows(readings);
    }
    score();
  }

  std::vector<tasks::Likelihood> take() { return std::move(results_); }

 private:
  /// What is shared, and texts that stand alone.
  void read_beginnings(std::vector<Reading>& readings) {
    Pass pass;
    for (Reading& reading : readings) {
      reading.caches.push_back(model_.kv_cache());
      const std::span<const int64_t> ids = texts_.ids[reading.group().begin];
      pass.add(reading.is_alone() ? ids : ids.first(reading.group().num_shared),
               reading.caches.front());
    }
    const std::vector<at::Tensor> hidden = pass.run(model_);
    for (size_t i = 0; i < readings.size(); ++i) {
      Reading& reading = readings[i];
      if (reading.is_alone()) {
        want(reading.take(), hidden[i], 0);
      } else {
        const int64_t count = reading.num_shared_scored();
        reading.shared_TC = hidden[i].narrow(0, hidden[i].size(0) - count, count).clone();
      }
    }
    tell(hidden);
  }

  /// Few contexts with many endings: several of each are read at a time, each with its own cache.
  void make_copies(std::vector<Reading>& readings) const {
    int64_t pass_tokens = 0;
    int64_t positions = 0;
    for (const Reading& reading : readings) {
      pass_tokens += reading.longest_ending();
      positions += reading.longest();
    }
    if (readings.empty()) return;
    const int64_t wanted = std::min(kPassTokens / pass_tokens, kCachePositions / positions);
    for (Reading& reading : readings) {
      for (int64_t i = 1; i < std::min(wanted, reading.num_texts()); ++i) {
        reading.caches.push_back(reading.caches.front().fork());
      }
    }
  }

  void read_endings(std::vector<Reading>& readings) {
    struct Ending {
      Reading* reading;
      size_t text;
    };
    Pass pass;
    std::vector<Ending> endings;
    for (Reading& reading : readings) {
      for (model::KvCache& cache : reading.caches) {
        if (reading.is_done()) break;
        cache.truncate(reading.group().num_shared);
        endings.push_back({&reading, reading.take()});
        pass.add(std::span(texts_.ids[endings.back().text])
                     .subspan(static_cast<size_t>(reading.group().num_shared)),
                 cache);
      }
    }
    const std::vector<at::Tensor> hidden = pass.run(model_);
    for (size_t i = 0; i < endings.size(); ++i) {
      want(endings[i].text, hidden[i], endings[i].reading->shared_end);
    }
    tell(hidden);
  }

  void tell(const std::vector<at::Tensor>& hidden) {
    for (const at::Tensor& part_TC : hidden) done_tokens_ += part_TC.size(0);
    if (progress_) progress_(done_tokens_, num_tokens_);
  }

  /// Keeps hidden states to score behind; returns the place after them.
  int64_t add_rows(const at::Tensor& rows_TC) {
    rows_TC_.push_back(rows_TC);
    return num_rows_ += rows_TC.size(0);
  }

  void add_shared_rows(std::vector<Reading>& readings) {
    for (Reading& reading : readings) reading.shared_end = add_rows(reading.shared_TC);
  }

  /// Notes what is scored behind a text: its own last hidden states, and where its continuations
  /// begin before those, the last of what it shares.
  void want(size_t text, const at::Tensor& own_TC, int64_t shared_end) {
    const int64_t num_own = std::min(texts_.num_scored[text], own_TC.size(0));
    // A copy, so that the other states of the pass are freed.
    const int64_t end = add_rows(own_TC.narrow(0, own_TC.size(0) - num_own, num_own).clone());
    for (const size_t place : texts_.requests[text]) {
      int64_t behind = std::ssize(requests_[place].continuation);  // Rows from here to the last.
      for (const int64_t id : requests_[place].continuation) {
        targets_.push_back({behind <= num_own ? end - behind : shared_end + num_own - behind, id});
        --behind;
      }
      wanted_.push_back(place);
    }
  }

  /// All that is wanted at once: the head is a large matrix, and every pass over it costs.
  void score() {
    if (wanted_.empty()) return;
    const auto scores = train::score_targets(model_, at::cat(rows_TC_), targets_);
    auto token = scores.begin();
    for (const size_t place : wanted_) {
      tasks::Likelihood& result = results_[place];
      result.is_greedy = true;
      for (size_t i = 0; i < requests_[place].continuation.size(); ++i, ++token) {
        if (std::isnan(token->log_probability)) {
          throw InputError(
              "the model's probabilities are not numbers (nan): its weights are damaged or its "
              "training diverged");
        }
        result.log_probability += token->log_probability;
        result.is_greedy = result.is_greedy && token->rank == 1;
      }
    }
    wanted_.clear();
    targets_.clear();
    rows_TC_.clear();
    num_rows_ = 0;
  }

  const model::Model& model_;
  std::span<const tasks::TokenRequest> requests_;
  const Texts& texts_;
  const Progress& progress_;
  int64_t num_tokens_;
  int64_t done_tokens_ = 0;
  std::vector<at::Tensor> rows_TC_;  // Hidden states behind which something is scored.
  int64_t num_rows_ = 0;
  std::vector<model::RowTarget> targets_;  // Of each request in wanted_ its continuation.
  std::vector<size_t> wanted_;
  std::vector<tasks::Likelihood> results_;
};

std::vector<SharedTexts> alone(size_t count) {
  std::vector<SharedTexts> groups;
  for (size_t i = 0; i < count; ++i) groups.push_back({i, i + 1, 0});
  return groups;
}

}  // namespace

std::vector<tasks::Likelihood> likelihoods(const model::Model& model,
                                           std::span<const tasks::TokenRequest> requests,
                                           int64_t batch_rows, const Progress& progress) {
  const at::NoGradGuard no_grad;
  const Texts texts = texts_of(requests);
  // Behind a shared beginning a longer text would be read with positions that turned otherwise.
  const bool may_share = std::ranges::all_of(texts.ids, [&](const std::vector<int64_t>& ids) {
    return std::ssize(ids) <= model.config().steady_positions();
  });
  std::vector<SharedTexts> groups =
      batch_rows > 0 || !may_share ? alone(texts.ids.size()) : share(texts.ids);
  const auto num_read = [&](const SharedTexts& group) { return group.num_read(texts.ids); };
  // The longest first: what does not fit into memory shows early.
  std::ranges::stable_sort(groups, std::ranges::greater(), num_read);
  int64_t num_tokens = 0;
  for (const SharedTexts& group : groups) num_tokens += num_read(group);
  Reader reader(model, requests, texts, progress, num_tokens);
  for (size_t begin = 0; begin < groups.size();) {
    size_t end = begin;
    int64_t tokens = 0;
    do {
      tokens += num_read(groups[end++]);
    } while (end < groups.size() &&
             (batch_rows > 0 ? static_cast<int64_t>(end - begin) < batch_rows
                             : tokens + num_read(groups[end]) <= kBatchTokens));
    reader.read(std::span(groups).subspan(begin, end - begin));
    begin = end;
  }
  return reader.take();
}

}  // namespace atl::serve
