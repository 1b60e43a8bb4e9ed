#include "atoll/tasks/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/tasks/python_literal.h"
#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"

namespace atl::tasks {
namespace {

constexpr uint32_t kExamplesSeed = 1234;  // lm-evaluation-harness's.

bool begins_with_space(std::string_view text) {
  return !text.empty() && text::is_python_space(text::decode_utf8(text).value);
}

bool ends_with_space(std::string_view text) {
  return text::strip(text, text::Side::kRight).size() < text.size();
}

/// Whether two texts run together where they meet.
bool run_together(std::string_view first, std::string_view second) {
  return !ends_with_space(first) && !begins_with_space(second);
}

bool is_whole(const Json& value) { return value.is_number_integer() || value.is_boolean(); }

int64_t whole(const Json& value) {
  return value.is_boolean() ? static_cast<int64_t>(value.get<bool>()) : value.get<int64_t>();
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// The documents of a split, each made by the function `change` where there is one.
Documents read_split(const Task& task, const std::string& split, NativeFunction change) {
  const auto* const files = files_of(task.data_files, split);
  if (files == nullptr) {
    throw InputError(
        fmt::format("task '{}': there is no split \"{}\" to take examples from", task.name, split));
  }
  Documents documents = read_documents(*files);
  if (change == nullptr) return documents;
  for (size_t i = 0; i < documents.rows.size(); ++i) {
    try {
      documents.rows[i] = change(documents.rows[i]);
    } catch (const InputError& error) {
      throw InputError(fmt::format("task '{}', split {}, document {}: process_docs: {}", task.name,
                                   split, i, error.what()));
    }
  }
  documents.fields.clear();
  for (const auto& [field, value] : documents.rows.front().items()) {
    documents.fields.push_back(field);
  }
  return documents;
}

}  // namespace

TaskPrompts::TaskPrompts(const Task& task, int64_t num_fewshot)
    : task_(task),
      num_fewshot_(num_fewshot),
      documents_(read_split(task, task.split, task.change)),
      random_(kExamplesSeed) {
  if (num_fewshot_ > 0) {
    const bool is_asked = task.source == task.split && task.change_example == task.change;
    pool_ = !task.source ? task.samples
            : is_asked   ? documents_.rows
                         : read_split(task, *task.source, task.change_example).rows;
  }
  // The first document tells what kind of answers there are.
  where_ = "document 0";
  const Json& first = documents_.rows.front();
  if (task.output == OutputType::kMultipleChoice) {
    choices_are_contexts_ = is_whole(text_of(task.asked, first));
    several_right_ = target_of(task.asked, first).is_array();
    if (choices_are_contexts_ && several_right_) {
      fail("doc_to_text gives a place among the choices, and doc_to_target a list");
    }
  }
}

std::string TaskPrompts::place_of(const char* key) const {
  return fmt::format("task '{}', {}, {}", task_.name, where_, key);
}

void TaskPrompts::fail(const std::string& what) const {
  throw InputError(fmt::format("task '{}', {}: {}", task_.name, where_, what));
}

std::string TaskPrompts::rendered(const std::string& source, const Json& document,
                                  const char* key) {
  auto found = templates_.find(source);
  if (found == templates_.end()) {
    const text::JinjaOptions options{.keep_trailing_newline = true, .strict_undefined = true};
    const std::string name = fmt::format("task '{}', {}", task_.name, key);
    found = templates_.emplace(source, text::JinjaTemplate(source, options, name)).first;
  }
  try {
    return found->second.render(document);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", where_, error.what()));
  }
}

Json TaskPrompts::value_of(const Json& setting, const Json& document, const char* key) {
  const std::string& source = setting.get_ref<const std::string&>();
  if (std::ranges::find(documents_.fields, source) == documents_.fields.end()) {
    return rendered(source, document, key);
  }
  if (!document.contains(source)) fail(fmt::format("{}: there is no field \"{}\"", key, source));
  return document[source];
}

Json TaskPrompts::called(NativeFunction function, const Json& document, const char* key) const {
  try {
    return function(document);
  } catch (const InputError& error) {
    fail(fmt::format("{}: {}", key, error.what()));
  }
}

Json TaskPrompts::text_of(const Wording& wording, const Json& document) {
  if (wording.text_function != nullptr) {
    return called(wording.text_function, document, "doc_to_text");
  }
  const Json& setting = wording.text;
  if (!setting.is_string()) return setting;
  const bool is_field = std::ranges::count(documents_.fields, setting.get<std::string>()) > 0;
  Json text = value_of(setting, document, "doc_to_text");
  if (!is_field && !task_.asked.choice.is_null() && all_digits(text.get<std::string>())) {
    return parse_python_literal(text.get<std::string>(), place_of("doc_to_text"));
  }
  return text;
}

Json TaskPrompts::target_of(const Wording& wording, const Json& document) {
  if (wording.target_function != nullptr) {
    return called(wording.target_function, document, "doc_to_target");
  }
  const Json& setting = wording.target;
  if (!setting.is_string()) return setting;
  const bool is_field = std::ranges::count(documents_.fields, setting.get<std::string>()) > 0;
  Json target = value_of(setting, document, "doc_to_target");
  if (is_field) return target;
  const std::string text = target;
  if (!task_.asked.choice.is_null() && all_digits(text)) {
    return parse_python_literal(text, place_of("doc_to_target"));
  }
  if (text.size() >= 2 && text.starts_with('[') && text.ends_with(']')) {
    try {
      return parse_python_literal(text, place_of("doc_to_target"));
    } catch (const InputError&) {
      return text;  // It only looks like a list.
    }
  }
  return text;
}

std::vector<std::string> TaskPrompts::choices_of(const Wording& wording, const Json& document) {
  const Json& setting = wording.choice;
  Json list = setting;
  if (wording.choice_function != nullptr) {
    list = called(wording.choice_function, document, "doc_to_choice");
  } else if (setting.is_string()) {
    list = value_of(setting, document, "doc_to_choice");
    if (list.is_string()) {
      list = parse_python_literal(list.get<std::string>(), place_of("doc_to_choice"));
    }
  }
  std::vector<std::string> choices;
  if (list.is_object() && !setting.is_object()) fail("doc_to_choice gives no list");
  for (const Json& choice : list) {
    if (!choice.is_string()) fail("doc_to_choice gives something that is no text");
    choices.push_back(choice);
  }
  if (choices.empty()) fail("doc_to_choice gives no choices");
  return choices;
}

std::optional<std::string> TaskPrompts::prefix_of(const Wording& wording, const Json& document) {
  if (!wording.prefix || wording.prefix->empty()) return std::nullopt;
  const Json prefix = value_of(*wording.prefix, document, "gen_prefix");
  if (!prefix.is_string()) fail("gen_prefix gives no text");
  return prefix.get<std::string>();
}

std::vector<const Json*> TaskPrompts::sample(const Json& asked) {
  const auto count = static_cast<size_t>(num_fewshot_);
  std::vector<const Json*> pool;
  for (const Json& document : pool_) pool.push_back(&document);
  const auto without_asked = [&](std::vector<const Json*> rows) {
    std::erase_if(rows, [&](const Json* row) { return *row == asked; });
    return rows;
  };
  const auto draw = [&](const std::vector<const Json*>& from, size_t number) {
    if (number > from.size()) {
      fail(fmt::format("{} examples are asked for, and there are {} documents to take them from",
                       num_fewshot_, from.size()));
    }
    std::vector<const Json*> drawn;
    for (const size_t place : random_.sample(from.size(), number)) drawn.push_back(from[place]);
    return drawn;
  };
  std::vector<const Json*> examples;
  if (task_.sampler == Sampler::kFirstN) {
    examples = task_.leaves_out_asked ? without_asked(pool) : pool;
    if (examples.size() < count) draw(examples, count);  // Says how many there are.
  } else if (task_.leaves_out_asked) {
    examples = without_asked(draw(pool, count + 1));
    // Several documents may be equal to the one that is asked about.
    if (examples.size() < count) examples = draw(without_asked(pool), count);
  } else {
    examples = draw(pool, count);
  }
  examples.resize(count);
  return examples;
}

std::string TaskPrompts::question_turn(const std::string& text,
                                       const std::optional<std::string>& prefix,
                                       const std::string& delimiter) const {
  if (!prefix || prefix->empty()) return text;
  const bool is_delimited = !text.empty() && run_together(text, *prefix);
  return text + (is_delimited ? delimiter : "") + *prefix;
}

/// Question, delimiter, answer, delimiter.
std::string TaskPrompts::example(const Json& document) {
  const Wording& wording = task_.example;
  Json text = text_of(wording, document);
  const Json target = target_of(wording, document);
  const std::optional<std::string> prefix = prefix_of(wording, document);
  std::vector<std::string> choices;
  if (!wording.choice.is_null()) choices = choices_of(wording, document);
  const auto choice_at = [&](const Json& place) {
    const int64_t number = whole(place);
    if (number < 0 || number >= std::ssize(choices)) {
      fail(fmt::format("an example's answer is {}, and it has {} choices", number, choices.size()));
    }
    return choices[static_cast<size_t>(number)];
  };
  if (choices_are_contexts_) {
    if (!is_whole(text)) fail("an example's doc_to_text is no place among its choices");
    text = choice_at(text);
  }
  if (!text.is_string()) fail("an example's doc_to_text is no text");
  Json answer = target.is_array() && !target.empty() ? target[0] : target;
  if (is_whole(target) && !choices.empty() && !choices_are_contexts_) answer = choice_at(target);
  if (answer.is_null() || answer == "") {
    return question_turn(text, prefix, wording.target_delimiter);
  }
  if (!answer.is_string()) fail("an example's answer is no text");
  const std::string question = text.get<std::string>();
  const std::string said = answer.get<std::string>();
  if (!prefix || prefix->empty()) {
    return question + wording.target_delimiter + said + wording.fewshot_delimiter;
  }
  return question_turn(question, prefix, wording.target_delimiter) +
         (run_together(*prefix, said) ? " " : "") + said + wording.fewshot_delimiter;
}

std::vector<int64_t> TaskPrompts::right_places(const Json& gold, const Question& question) const {
  const auto place = [&](const Json& value) {
    if (is_whole(value)) {
      const int64_t number = whole(value);
      return number >= 0 && number < std::ssize(question.choices) ? number : kNoChoice;
    }
    const auto found = value.is_string()
                           ? std::ranges::find(question.choices, value.get<std::string>())
                           : question.choices.end();
    return found == question.choices.end() ? kNoChoice : found - question.choices.begin();
  };
  if (gold.is_array() != question.several_right) {
    fail("doc_to_target gives a list for some documents and not for others");
  }
  std::vector<int64_t> places;
  if (!gold.is_array()) {
    if (!is_whole(gold) && !gold.is_string()) {
      fail("the right answer is neither a place among the choices nor a text");
    }
    return {place(gold)};
  }
  for (const Json& value : gold) {
    if (!is_whole(value)) fail("a list of right answers must hold places among the choices");
    places.push_back(place(value));
  }
  return places;
}

Question TaskPrompts::question(int64_t number) {
  const Json& document = documents_.rows[static_cast<size_t>(number)];
  const Wording& wording = task_.asked;
  Question question{.document = number, .several_right = several_right_};
  question.target = target_of(wording, document);
  if (task_.output != OutputType::kMultipleChoice && !question.target.is_string()) {
    fail("doc_to_target gives no text");
  }
  if (task_.output == OutputType::kRolling) {
    question.requests.push_back({"", question.target});
    return question;
  }
  std::string before;
  if (!task_.description.empty()) {
    const Json description = value_of(task_.description, document, "description");
    if (!description.is_string()) fail("description gives no text");
    before = description;
  }
  if (num_fewshot_ > 0) {
    for (const Json* row : sample(document)) before += example(*row);
  }
  const Json text = text_of(wording, document);
  const std::optional<std::string> prefix = prefix_of(wording, document);
  if (task_.output == OutputType::kLogLikelihood) {
    if (!text.is_string()) fail("doc_to_text gives no text");
    question.requests.push_back(
        {before + question_turn(text, prefix, wording.target_delimiter), question.target});
    return question;
  }
  question.choices = choices_of(wording, document);
  if (choices_are_contexts_) {
    if (!is_whole(text)) fail("doc_to_text gives a place among the choices elsewhere, not here");
    const Json& target = question.target;
    if (!target.is_string() && !target.is_number_integer()) fail("doc_to_target gives no text");
    const std::string said = target.is_string() ? target.get<std::string>() : target.dump();
    for (const std::string& choice : question.choices) {
      question.requests.push_back(
          {before + question_turn(choice, prefix, ""), wording.target_delimiter + said});
    }
  } else {
    if (!text.is_string()) fail("doc_to_text gives no text");
    const std::string context = before + question_turn(text, prefix, wording.target_delimiter);
    for (const std::string& choice : question.choices) {
      question.requests.push_back({context, wording.target_delimiter + choice});
    }
  }
  if (std::ranges::count(task_.metrics, "acc_mutual_info", &Metric::name) > 0) {
    for (const std::string& choice : question.choices) {
      question.requests.push_back({"", wording.target_delimiter + choice});
    }
  }
  question.right = right_places(choices_are_contexts_ ? text : question.target, question);
  return question;
}

std::vector<Question> TaskPrompts::questions(int64_t limit) {
  std::vector<Question> questions;
  const int64_t count = std::min(limit, num_documents());
  for (int64_t number = 0; number < count; ++number) {
    where_ = fmt::format("document {}", number);
    questions.push_back(question(number));
  }
  return questions;
}

}  // namespace atl::tasks
