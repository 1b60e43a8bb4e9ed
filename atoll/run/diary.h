#pragma once
// What an island did since its newest checkpoint, on disk beside the rounds (round_log.h): as which
// member, on which unit of data each step was trained, and what it sent to which round. With the
// checkpoint and the rounds it is all that computing those steps again needs. Lines of JSON in a
// run directory's rounds/NNNNNNNN.diary, a new file for each checkpoint. A line is written before
// anybody else hears of what it says, so a kill loses none that matters:
//   {"run": R, "term": T, "member": N, "step": S, "trained": K}   from step S on; K units so far
//   {"step": S, "unit": U, "trained": K, "member": N}             a step
//   {"round": R, "sent": X}                                       xxh3 of what was sent
// Lockstep only. LibTorch-free. One owner thread.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace atl::run {

class Diary {
 public:
  struct Membership {
    std::string run;  // Its id.
    uint64_t term = 0;
    int32_t member = -1;
    int64_t step = 0;     // From which on.
    int64_t trained = 0;  // Units as that member, until then.

    void visit(auto&& field) {
      field("run", run), field("term", term), field("member", member), field("step", step);
      field("trained", trained);
    }
  };
  struct Step {
    int64_t unit = 0;
    int64_t trained = 0;  // Units as that member, this one included.
    int32_t member = -1;

    void visit(auto&& field) {
      field("unit", unit), field("trained", trained), field("member", member);
    }
  };

  /// Reads what is in `folder`, up to the first line that is none, and adds to it.
  explicit Diary(std::filesystem::path folder);

  /// The newest; nothing where there is no diary.
  const std::optional<Membership>& membership() const { return membership_; }
  /// What an earlier process did as that step; nothing if none did.
  std::optional<Step> step(int64_t step) const;
  /// As which member it did that step; of one that is not known any more, the next that is.
  int32_t member_at(int64_t step) const;
  /// Whether it did all steps behind `after` up to `last`.
  bool has_steps(int64_t after, int64_t last) const;
  /// The last step that it did; -1: none.
  int64_t last_step() const { return steps_.empty() ? -1 : steps_.rbegin()->first; }
  /// Units that it had trained on as the newest member, once it had done `step`; all: INT64_MAX.
  int64_t trained_at(int64_t step) const;
  /// What it sent to a round: its xxh3.
  std::optional<uint64_t> sent(int64_t round) const;

  /// This island is another member from here on: later steps are void.
  void begin(const Membership& membership);
  /// Those that are in it already are not written again.
  void note_step(int64_t step, const Step& done);
  void note_sent(int64_t round, uint64_t sum);
  /// A checkpoint of this step begins. What is returned is to be called once it is complete, on any
  /// thread, and deletes what came before it.
  std::function<void()> checkpoint_begins(int64_t step, int64_t trained);

 private:
  void read(const std::filesystem::path& file);
  std::vector<std::filesystem::path> files() const;
  /// Begins the next file with these lines; it is there whole or not at all.
  void open_next(const std::string& lines);
  void write(const std::string& line);
  /// Steps behind this one, and all that was sent.
  std::string lines_behind(int64_t step) const;

  std::filesystem::path folder_;
  int64_t number_ = -1;  // Of the newest file.
  std::ofstream out_;
  std::optional<Membership> membership_;
  std::map<int64_t, Step> steps_;
  std::map<int64_t, uint64_t> sent_;  // By round.
};

}  // namespace atl::run
