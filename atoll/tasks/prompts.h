#pragma once
// From a task's documents to what a model is asked: texts, answers, examples before the question,
// as lm-evaluation-harness's ConfigurableTask puts them together.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/tasks/documents.h"
#include "atoll/tasks/python_random.h"
#include "atoll/tasks/task.h"
#include "atoll/text/jinja.h"

namespace atl::tasks {

/// One likelihood that is asked for. A rolling one has no context.
struct Request {
  std::string context;
  std::string continuation;
};

/// What is asked about one document, and what is right.
struct Question {
  int64_t document = 0;
  std::vector<Request> requests;
  std::vector<std::string> choices;  // Multiple choice only.
  Json target;                       // As doc_to_target gives it: a text, a place, or a list.
  /// Places among the choices; kNoChoice for an answer that is none of them. One, or with
  /// `several_right` any number.
  std::vector<int64_t> right;
  bool several_right = false;
};

inline constexpr int64_t kNoChoice = -100;

/// The documents and examples of one task. One owner thread.
class TaskPrompts {
 public:
  /// Reads the task's data. Throws InputError: files, a template that is no template.
  TaskPrompts(const Task& task, int64_t num_fewshot);

  int64_t num_documents() const { return static_cast<int64_t>(documents_.rows.size()); }
  const Json& document(int64_t number) const {
    return documents_.rows[static_cast<size_t>(number)];
  }
  /// The questions about the first `limit` documents, in their order. Throws InputError naming task
  /// and document: a template that fails, an answer of the wrong kind, too few examples.
  std::vector<Question> questions(int64_t limit);

 private:
  /// A setting that says something of a document: by a field's name, a template, or itself.
  Json value_of(const Json& setting, const Json& document, const char* key);
  std::string rendered(const std::string& source, const Json& document, const char* key);
  Json called(NativeFunction function, const Json& document, const char* key) const;
  Json text_of(const Wording& wording, const Json& document);
  Json target_of(const Wording& wording, const Json& document);
  std::vector<std::string> choices_of(const Wording& wording, const Json& document);
  std::optional<std::string> prefix_of(const Wording& wording, const Json& document);

  std::vector<const Json*> sample(const Json& asked);
  std::string example(const Json& document);
  std::string question_turn(const std::string& text, const std::optional<std::string>& prefix,
                            const std::string& delimiter) const;
  Question question(int64_t number);
  std::vector<int64_t> right_places(const Json& gold, const Question& question) const;
  std::string place_of(const char* key) const;
  [[noreturn]] void fail(const std::string& what) const;

  const Task& task_;
  int64_t num_fewshot_;
  Documents documents_;
  std::vector<Json> pool_;  // Of the examples.
  PythonRandom random_;
  std::map<std::string, text::JinjaTemplate> templates_;  // By their source.
  bool choices_are_contexts_ = false;  // doc_to_text says which is right (as in Winogrande).
  bool several_right_ = false;
  std::string where_;  // For messages: which document is at work.
};

}  // namespace atl::tasks
