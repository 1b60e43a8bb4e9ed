#include "atoll/model/tile_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "atoll/base/check.h"
#include "atoll/model/tile_kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace atl::model {

#if defined(__x86_64__)
namespace {

// Panels that stay in the near cache, of 1 or 2 MiB, of the thread that packed them, while those of
// the other factor, which all threads share, come by: so many bytes, and kPanelsAhead at most.
constexpr int64_t kNearBytes = int64_t{768} << 10;
constexpr int64_t kMostPassing = 64;

constexpr int kTileData = 18;                  // The part of a thread's state that tiles are.
constexpr int kAskForState = 0x1023;           // ARCH_REQ_XCOMP_PERM.
constexpr unsigned kHasBf16Tiles = 0x1400000;  // AMX-BF16 and AMX-TILE.

bool has_bf16_vectors() {
  return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16");
}

/// The processor has it, and the system lets this process use it.
bool has_amx() {
  static const bool answer = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return has_bf16_vectors() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (d & kHasBf16Tiles) == kHasBf16Tiles &&
           syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
  }();
  return answer;
}

int64_t num_panels(int64_t lanes) { return (lanes + kPanelLanes - 1) / kPanelLanes; }

template <typename T, typename Out>
class Product {
 public:
  struct Result {
    Out* data;
    int64_t stride;
    bool accumulates;
  };

  Product(int64_t m, int64_t n, int64_t k, Factor<T> a, Factor<T> b, Result out)
      : k_(k), out_(out), rows_{Side::kFirst, a, m}, columns_{Side::kSecond, b, n} {
    rows_stay_ = m >= n;
    most_depth_ = std::min(kDepth, (k + kStepDepth - 1) / kStepDepth * kStepDepth);
    passing_size_ = std::min(kMostPassing, num_panels(passing().num_lanes)) * panel_size();
    const int64_t panels = num_panels(staying().num_lanes);
    const auto panel_bytes = panel_size() * static_cast<int64_t>(sizeof(uint16_t));
    group_ = std::clamp<int64_t>(panels / (2 * num_threads_), 1,
                                 std::min(kPanelsAhead, kNearBytes / panel_bytes));
    const int64_t own_panels = std::min(num_threads_, panels) * group_;
    memory_ = at::empty({passing_size_ + own_panels * panel_size()}, at::kBFloat16);
    ATOLL_CHECK(reinterpret_cast<uintptr_t>(memory_.const_data_ptr()) % 64 == 0);
  }

  void multiply() {
    const int64_t count = num_panels(passing().num_lanes);
    for (int64_t k = 0; k < k_; k += kDepth) {
      for (int64_t i = 0; i < count; i += kMostPassing) {
        multiply_block(k, i, std::min(kMostPassing, count - i));
      }
    }
  }

 private:
  struct Lanes {
    Side side;
    Factor<T> factor;
    int64_t num_lanes;
  };
  /// A sum that ends in BF16 is made at once; others are added to what is there, panels after
  /// panels that leave the near cache room for what comes by.
  static constexpr int64_t kDepth = kParts<T> > 1              ? 512
                                    : sizeof(Out) == sizeof(T) ? kMostDepthIntoBf16
                                                               : 1024;

  /// Else by AMX.
  static bool is_by_vectors() { return kParts<T> == 1 && !has_amx(); }

  const Lanes& staying() const { return rows_stay_ ? rows_ : columns_; }
  const Lanes& passing() const { return rows_stay_ ? columns_ : rows_; }
  int64_t panel_size() const { return most_depth_ * kPanelLanes * kParts<T>; }
  uint16_t* memory(int64_t offset) const {
    return static_cast<uint16_t*>(memory_.mutable_data_ptr()) + offset;
  }

  int64_t num_steps(int64_t k) const {
    return (std::min(kDepth, k_ - k) + kStepDepth - 1) / kStepDepth;
  }

  struct Place {
    int64_t row;
    int64_t column;
  };
  Place place(int64_t stays, int64_t passes) const {
    return rows_stay_ ? Place{stays * kPanelLanes, passes * kPanelLanes}
                      : Place{passes * kPanelLanes, stays * kPanelLanes};
  }
  Out* out_at(Place at) const { return out_.data + at.row * out_.stride + at.column; }

  void pack(const Lanes& lanes, int64_t panel, int64_t k, uint16_t* to) const {
    const int64_t lane = panel * kPanelLanes;
    pack_panel(lanes.side, lanes.factor.from(lane, k),
               std::min(kPanelLanes, lanes.num_lanes - lane), std::min(kDepth, k_ - k), to);
  }

  /// All staying panels by `count` of those that pass.
  void multiply_block(int64_t k, int64_t first, int64_t count) const {
    share(count, {1, 1}, [&](int64_t i, int64_t /*size*/, int64_t /*thread*/) {
      pack(passing(), first + i, k, memory(i * panel_size()));
    });
    // By AMX many at a time, as what passes is brought nearer in parts.
    const Sizes sizes{is_by_vectors() ? 1 : group_, group_};
    share(num_panels(staying().num_lanes), sizes, [&](int64_t begin, int64_t size, int64_t thread) {
      std::optional<TilesInUse> tiles;
      if (!is_by_vectors()) tiles.emplace();
      uint16_t* const own = memory(passing_size_ + thread * group_ * panel_size());
      for (int64_t j = 0; j < size; ++j) pack(staying(), begin + j, k, own + j * panel_size());
      multiply_group(k, begin, size, own, first, count);
    });
  }

  struct Sizes {
    int64_t least;
    int64_t most;
  };
  /// Who is done takes the next ones, fewer of them towards the end: neighbours may slow one of the
  /// cores down to two fifths.
  template <typename Use>
  void share(int64_t count, Sizes sizes, const Use& use) const {
    std::atomic<int64_t> next = 0;
    at::parallel_for(0, std::min(count, num_threads_), 1, [&](int64_t thread, int64_t /*end*/) {
      for (int64_t begin = next; begin < count;) {
        const int64_t left = count - begin;
        const int64_t part = num_threads_ == 1 ? left : left / (2 * num_threads_);
        const int64_t size = std::min(std::clamp(part, sizes.least, sizes.most), left);
        if (!next.compare_exchange_weak(begin, begin + size)) continue;
        use(begin, size, thread);
        begin = next;
      }
    });
  }

  void multiply_group(int64_t k, int64_t stays, int64_t group, const uint16_t* own, int64_t passes,
                      int64_t count) const {
    const int64_t part = num_steps(k) * kStepSize * kParts<T> / kPanelsAhead;
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t* const passing = memory(i * panel_size());
      const uint16_t* const next = memory((i + 1 < count ? i + 1 : i) * panel_size());
      for (int64_t j = 0; j < group; ++j) {
        const uint16_t* const staying = own + j * panel_size();
        const bool is_last = j + 1 == group;
        const Place next_place =
            place(stays + (is_last ? 0 : j + 1), passes + (is_last ? i + 1 : i));
        multiply_two(
            k, place(stays + j, passes + i), rows_stay_ ? staying : passing,
            rows_stay_ ? passing : staying,
            {next + j * part, out_at(next_place), out_.stride * static_cast<int64_t>(sizeof(Out))});
      }
    }
  }

  void multiply_two(int64_t k, Place at, const uint16_t* first, const uint16_t* second,
                    const Ahead& ahead) const {
    const int64_t num_rows = std::min(kPanelLanes, rows_.num_lanes - at.row);
    const int64_t num_columns = std::min(kPanelLanes, columns_.num_lanes - at.column);
    const bool is_whole = num_rows == kPanelLanes && num_columns == kPanelLanes;
    const bool adds = out_.accumulates || k > 0;
    Out* const out = out_at(at);
    alignas(64) float sums[kPanelLanes * kPanelLanes];
    if (is_by_vectors()) {
      if (is_whole) {
        return multiply_panels_by_vectors(num_steps(k), first, second, out, out_.stride, adds);
      }
      multiply_panels_by_vectors(num_steps(k), first, second, sums, kPanelLanes, /*adds=*/false);
    } else {
      constexpr auto kMultiply = multiply_panels_by_amx<kParts<T>>;
      if constexpr (sizeof(Out) == sizeof(float)) {
        if (is_whole && !adds) {
          return kMultiply(num_steps(k), first, second, out, out_.stride, ahead);
        }
      }
      kMultiply(num_steps(k), first, second, sums, kPanelLanes, ahead);
    }
    if constexpr (sizeof(Out) == sizeof(float)) {
      put_sums(sums, num_rows, num_columns, out, out_.stride, adds);
    } else {
      put_sums(sums, num_rows, num_columns, out, out_.stride);
    }
  }

  int64_t k_;
  Result out_;
  Lanes rows_;
  Lanes columns_;
  bool rows_stay_;
  int64_t most_depth_;
  int64_t passing_size_;
  int64_t group_;  // Panels that a thread keeps at a time, at most.
  int64_t num_threads_ = at::get_num_threads();
  at::Tensor memory_;  // Passing panels, then those of each thread.
};

template <typename T>
Factor<T> factor(const at::Tensor& matrix, int64_t lanes, int64_t depth) {
  const auto stride = [&](int64_t way) { return matrix.size(way) <= 1 ? 1 : matrix.stride(way); };
  ATOLL_CHECK(stride(lanes) == 1 || stride(depth) == 1);
  return {static_cast<const T*>(matrix.const_data_ptr()), stride(lanes), stride(depth)};
}

template <typename T, typename Out>
void multiply(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
              bool accumulates) {
  Product<T, Out>(out_MN.size(0), out_MN.size(1), a_MK.size(1), factor<T>(a_MK, 0, 1),
                  factor<T>(b_KN, 1, 0),
                  {static_cast<Out*>(out_MN.mutable_data_ptr()), out_MN.stride(0), accumulates})
      .multiply();
}

}  // namespace

bool has_tiles(at::ScalarType factors) {
  return factors == at::kFloat ? has_amx() : factors == at::kBFloat16 && has_bf16_vectors();
}

void multiply_by_tiles(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                       bool accumulates) {
  ATOLL_CHECK(has_tiles(a_MK.scalar_type()) && a_MK.scalar_type() == b_KN.scalar_type() &&
              (a_MK.scalar_type() == at::kBFloat16 || out_MN.scalar_type() == at::kFloat));
  if (a_MK.size(1) == 0) {
    if (!accumulates) out_MN.zero_();
  } else if (a_MK.scalar_type() == at::kFloat) {
    multiply<float, float>(out_MN, a_MK, b_KN, accumulates);
  } else if (out_MN.scalar_type() == at::kFloat) {
    multiply<uint16_t, float>(out_MN, a_MK, b_KN, accumulates);
  } else {
    ATOLL_CHECK(!accumulates && a_MK.size(1) <= kMostDepthIntoBf16);
    multiply<uint16_t, uint16_t>(out_MN, a_MK, b_KN, accumulates);
  }
}
#else
bool has_tiles(at::ScalarType) { return false; }

void multiply_by_tiles(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool) {
  ATOLL_CHECK(false, "there are no tiles here");
}
#endif

}  // namespace atl::model
