#pragma once
// Whose contribution to a round is unlike contributions as they usually are: a mistake of one
// island that would move the model of all. Pure, and without a memory: what is usual is in the
// book.
//
// By its norm: it is over `factor` times the usual one, and over it for each token too (who has
// trained for longer may have gone further). Usual is the median of the last 20 norms that counted
// in rounds of that fragment. As long as fewer than five are known, and where more than half of the
// contributors would be too large (then it is the run that has changed), it is the median of the
// others in the same round. Below four contributors nobody can tell that way who is wrong: one is
// too large there only beside its own last norms as well.
//
// By its direction, of at least four whose norms are as usual: its alignment is its cosine to the
// mean of the others, each taken at unit length. Usual is the median of all alignments in this
// round. Nobody is judged where that is small, or could be chance among so few values: there
// contributions have little in common. Who is under a quarter of the usual is an outlier: a flipped
// sign is far below zero, noise is at zero. Who has trained for less than others is aligned less:
// the limit falls with the root of the weight.
//
// Nothing wears off: what is unlike the usual is left out each time, until it is usual again.
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace atl::swarm {

class Outliers {
 public:
  static constexpr size_t kUsual = 20;           // Norms, of which the median is usual.
  static constexpr size_t kLeastKnown = 5;       // Norms, before they say what is usual.
  static constexpr size_t kFewContributors = 4;  // Fewer cannot be judged by each other.
  /// Norms that are remembered: with few contributors the last 20 of each are among them.
  static constexpr size_t kMemory = (kFewContributors - 1) * kUsual;
  static constexpr double kLeastAlignment = 0.1;  // That is usual, for anybody to be judged by it.
  static constexpr double kChances = 5;           // And standard deviations of chance.
  static constexpr double kUnlike = 0.25;         // Of the usual alignment.

  struct Contributed {
    int32_t number = 0;  // Of the member.
    double norm = 0;     // >= 0
    int64_t weight = 1;  // Tokens, > 0.

    double per_token() const { return norm / static_cast<double>(weight); }
    bool operator==(const Contributed&) const = default;
  };
  /// Of those that counted in rounds of a fragment, oldest first.
  using Norms = std::deque<Contributed>;
  /// Contributions of one round beside each other.
  struct Compared {
    std::vector<double> cosines;  // Of all pairs, row by row; empty: not known.
    int64_t num_values = 0;       // That they are of.
  };
  enum class Offence : uint8_t { kNorm, kDirection };
  struct Outlier {
    int32_t number = 0;
    Offence offence = Offence::kNorm;
    double figure = 0;  // The norm, or the alignment,
    double usual = 0;   // and what it is beside.

    bool operator==(const Outlier&) const = default;
  };

  /// `factor` >= 1; 0: nobody is an outlier.
  explicit Outliers(double factor) : factor_(factor) {}

  /// Who is to be left out of a round, of all with a weight. `compared` is in their order.
  std::vector<Outlier> judge(const Norms& known, std::span<const Contributed> all,
                             const Compared& compared) const;
  /// It counted.
  static void remember(Norms& known, const Contributed& one);

 private:
  std::vector<Outlier> too_large(const Norms& known, std::span<const Contributed> all) const;
  std::vector<Outlier> too_large_beside_others(std::span<const Contributed> all) const;

  double factor_;
};

}  // namespace atl::swarm
