#pragma once
// Which parameters are synchronised together, and when (Streaming DiLoCo, arXiv 2501.18512, section
// 2.2). LibTorch-free and pure: everything follows from the settings and the step, so a resumed run
// needs no record of it.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::method {

/// Elements [begin, end) of the flat parameters.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Range&) const = default;
};

/// In ascending order, neither empty nor touching.
struct Fragment {
  std::vector<Range> ranges;
  int64_t size = 0;
};

/// Cuts the parameters into `num_fragments` fragments; every element is in exactly one.
///   strided     fragment 0: embedding, final norm and head; layer l: 1 + l mod (num_fragments - 1)
///   sequential  the same, but neighbouring layers together
///   balanced    equal sizes, cut anywhere in the flat order
/// One fragment holds everything. Throws UsageError when there are more fragments than layers to
/// fill them (or, balanced, than elements).
std::vector<Fragment> make_fragments(std::span<const weights::ParameterSpec> specs,
                                     const std::string& pattern, int64_t num_fragments);

/// When each fragment is due. Fragment p is sent after steps t with (t - t_p) mod H = 0 and
/// t - t_p >= H, where t_p = p * floor(H / P): each trains H steps before it is sent first. The
/// paper's text writes t + t_p, its algorithm 2 and its example t - t_p; this follows the latter.
/// After the last step all fragments are sent, each with what it has.
class FragmentSchedule {
 public:
  /// 1 <= num_fragments <= sync_every.
  FragmentSchedule(int64_t sync_every, int64_t num_fragments, int64_t last_step);

  /// The fragment sent after `step`, if one is; not for the last step, after which all are.
  std::optional<int64_t> due(int64_t step) const;
  /// The newest step <= `step` after which `fragment` was sent; 0: none yet.
  int64_t last_sent(int64_t fragment, int64_t step) const;
  /// How many times `fragment` will have been sent after `step`, at which it is sent.
  int64_t number(int64_t fragment, int64_t step) const;
  /// The number of the round in which `fragment` is sent after `step`.
  int64_t round(int64_t fragment, int64_t step) const;

 private:
  int64_t num_sent(int64_t fragment, int64_t step) const;

  int64_t sync_every_;
  int64_t num_fragments_;
  int64_t last_step_;
  int64_t spacing_;
};

}  // namespace atl::method
