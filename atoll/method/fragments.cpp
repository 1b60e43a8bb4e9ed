#include "atoll/method/fragments.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::method {
namespace {

void append(Fragment& fragment, Range range) {
  if (range.begin == range.end) return;
  fragment.size += range.end - range.begin;
  if (!fragment.ranges.empty() && fragment.ranges.back().end == range.begin) {
    fragment.ranges.back().end = range.end;
  } else {
    fragment.ranges.push_back(range);
  }
}

std::vector<Fragment> equal_parts(int64_t size, int64_t num_fragments) {
  std::vector<Fragment> fragments(static_cast<size_t>(num_fragments));
  const int64_t part = size / num_fragments;
  const int64_t longer = size % num_fragments;  // The first ones have one element more.
  int64_t begin = 0;
  for (int64_t p = 0; p < num_fragments; ++p) {
    const int64_t end = begin + part + (p < longer ? 1 : 0);
    append(fragments[static_cast<size_t>(p)], {begin, end});
    begin = end;
  }
  return fragments;
}

/// The fragment of a layer; `groups` fragments hold layers.
int64_t fragment_of(int64_t layer, int64_t num_layers, int64_t groups, bool strided) {
  if (layer < 0) return 0;
  return 1 + (strided ? layer % groups : layer * groups / num_layers);
}

}  // namespace

std::vector<Fragment> make_fragments(std::span<const weights::ParameterSpec> specs,
                                     const std::string& pattern, int64_t num_fragments) {
  ATOLL_CHECK(!specs.empty() && num_fragments >= 1);
  const int64_t size = specs.back().offset + specs.back().size;
  int64_t num_layers = 0;
  for (const auto& spec : specs) num_layers = std::max(num_layers, spec.layer + 1);
  const bool balanced = pattern == "balanced" || num_fragments == 1;
  const int64_t most = balanced ? size : 1 + num_layers;
  if (num_fragments > most) {
    throw UsageError(fmt::format(
        "sync.num_fragments = {} is over {}: the model has {} layers, and embedding and "
        "head are one fragment more; use fewer, or sync.fragment_pattern = 'balanced'",
        num_fragments, most, num_layers));
  }
  if (balanced) return equal_parts(size, num_fragments);
  std::vector<Fragment> fragments(static_cast<size_t>(num_fragments));
  for (const auto& spec : specs) {
    const int64_t p = fragment_of(spec.layer, num_layers, num_fragments - 1, pattern == "strided");
    append(fragments[static_cast<size_t>(p)], {spec.offset, spec.offset + spec.size});
  }
  return fragments;
}

FragmentSchedule::FragmentSchedule(int64_t sync_every, int64_t num_fragments, int64_t last_step)
    : sync_every_(sync_every),
      num_fragments_(num_fragments),
      last_step_(last_step),
      spacing_(sync_every / num_fragments) {
  ATOLL_CHECK(num_fragments >= 1 && num_fragments <= sync_every);
}

std::optional<int64_t> FragmentSchedule::due(int64_t step) const {
  if (step < sync_every_ || step >= last_step_) return std::nullopt;
  const int64_t phase = step % sync_every_;
  const int64_t fragment = phase / spacing_;
  if (phase % spacing_ != 0 || fragment >= num_fragments_) return std::nullopt;
  return fragment;
}

int64_t FragmentSchedule::num_sent(int64_t fragment, int64_t step) const {
  return std::max<int64_t>(0, (step - fragment * spacing_) / sync_every_);
}

int64_t FragmentSchedule::last_sent(int64_t fragment, int64_t step) const {
  const int64_t times = num_sent(fragment, step);
  return times == 0 ? 0 : times * sync_every_ + fragment * spacing_;
}

int64_t FragmentSchedule::number(int64_t fragment, int64_t step) const {
  return num_sent(fragment, step - 1) + 1;
}

int64_t FragmentSchedule::round(int64_t fragment, int64_t step) const {
  int64_t before = 0;
  for (int64_t p = 0; p < num_fragments_; ++p) before += num_sent(p, step - 1);
  return step == last_step_ ? before + fragment : before;
}

}  // namespace atl::method
