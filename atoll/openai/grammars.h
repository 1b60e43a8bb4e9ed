#pragma once
// The grammars that answers of a model are kept in, made once for each form that is asked for: a
// form costs milliseconds, and the model's vocabulary tenths of a second. Thread-safe; it is asked
// by the threads that read requests, so that no text that is under way waits.
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/grammar/token_masks.h"
#include "atoll/openai/structure.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::openai {

class Grammars {
 public:
  using Masks = std::shared_ptr<const grammar::TokenMasks>;

  Grammars(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int64_t vocab_size,
           std::vector<int64_t> ends)
      : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size), ends_(std::move(ends)) {}

  /// Null where any text will do. `form` is how the model calls tools. Throws ApiError with the
  /// structure's field where there can be no such grammar.
  Masks find(const Structure& structure, grammar::ToolForm form);

  static constexpr size_t kMaxForms = 64;
  static constexpr size_t kMaxBytes = size_t{1} << 29;  // Above, those asked for longest ago go.

 private:
  struct Kept {
    std::string key;
    Masks masks;
  };
  Masks look_up(const std::string& key);
  Masks make(const Structure& structure, grammar::ToolForm form) ATOLL_REQUIRES(making_);
  void keep(const std::string& key, const Masks& masks);
  std::shared_ptr<const grammar::Vocabulary> vocabulary() ATOLL_REQUIRES(making_);

  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const int64_t vocab_size_;
  const std::vector<int64_t> ends_;
  Mutex making_;  // One is made at a time: whoever sends large schemas takes one processor.
  std::shared_ptr<const grammar::Vocabulary> vocabulary_ ATOLL_GUARDED_BY(making_);
  Mutex mutex_;
  std::list<Kept> kept_ ATOLL_GUARDED_BY(mutex_);  // The last asked for first.
};

}  // namespace atl::openai
