#include "atoll/cli/torch_answer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/run/child_process.h"

namespace atl::cli {
namespace {

/// One of the programs.
class Question {
 public:
  Question(const std::vector<std::string>& words, size_t number)
      : child_(command(words), std::filesystem::temp_directory_path() /
                                   fmt::format("atoll-measure-{}-{}.log", ::getpid(), number)) {}

  bool is_answered() {
    if (!status_) status_ = child_.poll_exit();
    for (const std::string& line : child_.read_lines()) answer_ += line;
    return status_.has_value();
  }

  /// is_answered(), once.
  nlohmann::json answer() {
    std::string said = run::last_lines(child_.log(), 5);
    std::error_code ignored;
    std::filesystem::remove(child_.log(), ignored);
    nlohmann::json json = nlohmann::json::parse(answer_, nullptr, /*allow_exceptions=*/false);
    if (*status_ == 0 && json.is_object()) return json;
    if (said.empty()) {
      said = child_.was_killed() && *status_ == 128 + 9
                 ? "the system ended it, most likely because memory ran out; measure a smaller "
                   "model"
                 : fmt::format("it ended with status {} and said nothing", *status_);
    }
    const std::string what = "this machine cannot be measured: " + said;
    if (*status_ == 2) throw UsageError(what);
    throw InputError(what);
  }

 private:
  static std::vector<std::string> command(const std::vector<std::string>& words) {
    std::vector<std::string> command = {sibling_program("atoll-torch")};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }

  run::ChildProcess child_;
  std::string answer_;
  std::optional<int> status_;
};

}  // namespace

nlohmann::json torch_answer(const std::vector<std::string>& words,
                            const std::function<void()>& waits) {
  return torch_answers({words}, waits).front();
}

std::vector<nlohmann::json> torch_answers(const std::vector<std::vector<std::string>>& commands,
                                          const std::function<void()>& waits) {
  std::vector<std::unique_ptr<Question>> questions;
  for (const auto& words : commands) {
    questions.push_back(std::make_unique<Question>(words, questions.size()));
  }
  std::vector<nlohmann::json> answers(questions.size());
  for (size_t num_answered = 0; num_answered < questions.size();) {
    throw_if_interrupted();
    ::poll(nullptr, 0, 50);
    waits();
    for (size_t i = 0; i < questions.size(); ++i) {
      if (!questions[i] || !questions[i]->is_answered()) continue;
      answers[i] = questions[i]->answer();
      questions[i].reset();
      num_answered += 1;
    }
  }
  return answers;
}

}  // namespace atl::cli
