#pragma once
// Whose contribution to a round is far larger than contributions usually are: a mistake of one
// island that would move the model of all. Pure; it remembers the norms of what was committed.
//
// An outlier's norm is over `factor` times the median of the last 20 committed norms of its
// fragment, and over `factor` times that for each token too: who has trained for longer may have
// gone further. Below four contributors that is the median of its own ones: two islands cannot tell
// which of them is wrong. Nobody is judged by less than five norms, or by a median of 0.
//
// Norms may grow for good, and the run must go on. So when more than half of the contributors are
// outliers none of them is: it is the run that has changed. And an island is left out of three
// rounds of a fragment in a row at most: what stays large is what it has learned.
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

namespace atl::swarm {

class Outliers {
 public:
  static constexpr size_t kMemory = 20;          // Norms.
  static constexpr size_t kLeastKnown = 5;       // Norms, before anybody is judged.
  static constexpr size_t kFewContributors = 4;  // With fewer each is judged by its own norms.
  static constexpr int kPatience = 3;            // Rounds in a row.

  struct Contributed {
    int32_t number = 0;  // Of the member.
    double norm = 0;     // >= 0
    int64_t weight = 1;  // Tokens, > 0.

    double per_token() const { return norm / static_cast<double>(weight); }
  };
  struct Outlier {
    int32_t number = 0;
    double norm = 0;
    double usual = 0;  // The median that it is over `factor` times of.
  };

  /// `factor` >= 1; 0: no norm is too large.
  explicit Outliers(double factor) : factor_(factor) {}

  /// Who is to be left out of a round of the fragment, of all with a weight. Each that it names
  /// counts as left out.
  std::vector<Outlier> judge(int32_t fragment, std::span<const Contributed> all);
  /// The round was committed, with these in it.
  void committed(int32_t fragment, std::span<const Contributed> all);
  /// The member is none any more.
  void forget(int32_t number);

 private:
  using Norms = std::deque<Contributed>;  // Oldest first.
  struct Member {
    Norms norms;
    int num_left_out = 0;  // Of the last rounds, in a row.
  };
  struct Fragment {
    Norms norms;  // Of all members.
    std::map<int32_t, Member> members;
  };

  /// Those whose norm is too large, however often it was.
  std::vector<Outlier> find(const Fragment& fragment, std::span<const Contributed> all) const;

  double factor_;
  std::map<int32_t, Fragment> fragments_;
};

}  // namespace atl::swarm
