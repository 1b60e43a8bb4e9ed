#include "atoll/run/diary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr std::string_view kSuffix = ".diary";

std::string line_of(const Diary::Membership& membership) {
  return json_of<json>(membership).dump() + "\n";
}

std::string line_of(int64_t step, const Diary::Step& done) {
  json line = {{"step", step}};
  line.update(json_of<json>(done));
  return line.dump() + "\n";
}

std::string line_of(int64_t round, uint64_t sum) {
  return json{{"round", round}, {"sent", sum}}.dump() + "\n";
}

}  // namespace

Diary::Diary(fs::path folder) : folder_(std::move(folder)) {
  for (const fs::path& file : files()) read(file);
}

std::vector<fs::path> Diary::files() const {
  std::vector<fs::path> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing)) {
    if (entry.path().extension() == kSuffix) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

void Diary::read(const fs::path& file) {
  number_ = std::max<int64_t>(number_, std::atoll(file.stem().c_str()));
  std::istringstream in(read_file(file));
  for (std::string text; std::getline(in, text);) {
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) continue;  // Being written when the power went.
    try {
      if (line.contains("run")) {
        membership_ = struct_of<Membership>(line, file.string());
        steps_.erase(steps_.upper_bound(membership_->step), steps_.end());
      } else if (line.contains("round")) {
        sent_[line.at("round")] = line.at("sent");
      } else {
        steps_[line.at("step")] = struct_of<Step>(line, file.string());
      }
    } catch (const std::exception&) {  // Not what this program writes.
      continue;
    }
  }
}

std::optional<Diary::Step> Diary::step(int64_t step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? std::nullopt : std::optional(found->second);
}

int32_t Diary::member_at(int64_t step) const {
  const auto found = steps_.lower_bound(step);
  if (found != steps_.end()) return found->second.member;
  return membership_ ? membership_->member : -1;
}

bool Diary::has_steps(int64_t after, int64_t last) const {
  if (last <= after) return true;
  return std::distance(steps_.upper_bound(after), steps_.upper_bound(last)) == last - after;
}

int64_t Diary::trained_at(int64_t step) const {
  if (!membership_) return 0;
  const auto is_own = [&](const auto& entry) { return entry.second.member == membership_->member; };
  const auto behind = steps_.upper_bound(step);
  const auto before = std::find_if(std::reverse_iterator(behind), steps_.rend(), is_own);
  if (before != steps_.rend()) return before->second.trained;
  const auto next = std::find_if(behind, steps_.end(), is_own);
  return next != steps_.end() ? next->second.trained - 1 : membership_->trained;
}

std::optional<uint64_t> Diary::sent(int64_t round) const {
  const auto found = sent_.find(round);
  return found == sent_.end() ? std::nullopt : std::optional(found->second);
}

void Diary::begin(const Membership& membership) {
  membership_ = membership;
  steps_.erase(steps_.upper_bound(membership.step), steps_.end());
  const auto before = files();
  open_next(lines_behind(-1) + line_of(membership));
  remove_files(before);
}

void Diary::open_next(const std::string& lines) {
  number_ += 1;
  const fs::path file = folder_ / fmt::format("{:08}{}", number_, kSuffix);
  out_ = {};
  try {
    fs::create_directories(folder_);
    write_file_atomically(file, lines);
    out_.open(file, std::ios::app);
  } catch (const std::exception&) {  // Without it the run goes on from the newest commit.
    out_.setstate(std::ios::failbit);
  }
}

void Diary::write(const std::string& line) {
  if (!out_.is_open() && number_ >= 0) {  // An earlier process's, perhaps without its last end.
    out_.open(folder_ / fmt::format("{:08}{}", number_, kSuffix), std::ios::app);
    out_ << "\n";
  }
  out_ << line << std::flush;
}

void Diary::note_step(int64_t step, const Step& done) {
  if (!steps_.contains(step)) write(line_of(step, done));
}

void Diary::note_sent(int64_t round, uint64_t sum) {
  if (sent(round) != std::optional(sum)) write(line_of(round, sum));
}

std::function<void()> Diary::checkpoint_begins(int64_t step, int64_t trained) {
  if (!membership_) return [] {};
  auto before = files();
  Membership now = *membership_;
  now.step = step;
  now.trained = trained;
  // An earlier process may have been further: others may count on what it did there.
  open_next(line_of(now) + lines_behind(step));
  return [before = std::move(before)] { remove_files(before); };
}

std::string Diary::lines_behind(int64_t step) const {
  std::string lines;
  for (auto found = steps_.upper_bound(step); found != steps_.end(); ++found) {
    lines += line_of(found->first, found->second);
  }
  for (const auto& [round, sum] : sent_) lines += line_of(round, sum);
  return lines;
}

}  // namespace atl::run
