#include "atoll/model/product_memory.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/file_lock.h"
#include "atoll/base/hash.h"

namespace atl::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeading =
    "# Which library multiplies matrices of a shape quickest here, as Atoll measured it "
    "(docs/operations.md).\n"
    "# Runs hang on it to the bit: remove this file only while none goes on.\n";
constexpr std::string_view kBetween = " = ";
constexpr std::string_view kSum = "sum ";

std::string sum_line(std::string_view text) {
  return fmt::format("{}{:016x}\n", kSum, xxh3(text.data(), text.size()));
}

}  // namespace

std::string memory_text(const Answers& answers) {
  std::string text(kHeading);
  for (const auto& [what, answer] : answers)
    text += fmt::format("{}{}{}\n", what, kBetween, answer);
  return text + sum_line(text);
}

std::optional<Answers> parse_memory(std::string_view text) {
  const size_t end = text.rfind(kSum);
  if (end == text.npos || text.substr(end) != sum_line(text.substr(0, end))) return std::nullopt;
  Answers answers;
  text = text.substr(0, end);
  while (!text.empty()) {
    const size_t length = text.find('\n');
    if (length == text.npos) return std::nullopt;
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(length + 1);
    if (line.starts_with('#')) continue;
    const size_t between = line.rfind(kBetween);
    if (between == line.npos) return std::nullopt;
    answers.emplace(line.substr(0, between), line.substr(between + kBetween.size()));
  }
  return answers;
}

ProductMemory::ProductMemory(fs::path path) : path_(std::move(path)) {
  try {
    read(OnDamage::kIsIgnored);
  } catch (const std::exception&) {  // Who wants to add to it is told that he cannot.
    is_usable_ = false;
  }
}

/// Throws when there is a file that cannot be read.
void ProductMemory::read(OnDamage on_damage) {
  if (!fs::exists(path_)) return;
  std::optional<Answers> found;
  if (fs::file_size(path_) <= kMaxFileBytes) found = parse_memory(read_file(path_));
  if (found) {
    found->merge(answers_);  // What this process has used stays true.
    answers_ = std::move(*found);
  } else if (on_damage == OnDamage::kPutsAside) {
    fs::path aside = path_;
    aside += ".damaged";
    fs::rename(path_, aside);
  }
}

std::optional<std::string> ProductMemory::find_or_measure(
    const std::string& what, const std::function<std::string()>& measure) {
  if (const auto found = answers_.find(what); found != answers_.end()) return found->second;
  if (!is_usable_) return std::nullopt;
  try {
    fs::create_directories(path_.parent_path());
    const FileLock lock(path_);
    read(OnDamage::kPutsAside);
    if (const auto found = answers_.find(what); found != answers_.end()) return found->second;
    if (answers_.size() >= kMaxAnswers) return std::nullopt;
    require_writable(path_);
    Answers more = answers_;
    std::string answer = more[what] = measure();
    write_file_atomically(path_, memory_text(more));
    answers_ = std::move(more);
    return answer;
  } catch (const InputError&) {
    is_usable_ = false;
  } catch (const fs::filesystem_error&) {
    is_usable_ = false;
  }
  return std::nullopt;
}

}  // namespace atl::model
