#include "atoll/codec/subset_codec.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

/// Memory for one call: positions and packed values. Kept by the thread for the next call, because
/// a segment's worth fresh from the system costs as much as the encoding.
class Scratch {
 public:
  explicit Scratch(size_t size) {
    if (!spare().empty()) {
      buffers_ = std::move(spare().back());
      spare().pop_back();
    }
    buffers_.positions.resize(size);
    buffers_.values.resize(size);
  }
  ~Scratch() { spare().push_back(std::move(buffers_)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::vector<uint32_t>& positions() { return buffers_.positions; }
  std::vector<float>& values() { return buffers_.values; }

 private:
  struct Buffers {
    std::vector<uint32_t> positions;
    std::vector<float> values;
  };
  /// One for each codec of a composition that is at work.
  static std::vector<Buffers>& spare() {
    thread_local std::vector<Buffers> buffers;
    return buffers;
  }
  Buffers buffers_;
};

}  // namespace

SubsetCodec::SubsetCodec(std::string_view stage, double share, std::unique_ptr<Codec> inner)
    : share_(share), inner_(std::move(inner)), name_(fmt::format("{}+{}", stage, inner_->name())) {}

Codec::ErrorBound SubsetCodec::error_bound() const {
  ErrorBound bound = inner_->error_bound();
  bound.relative = std::max(bound.relative, 1.0);
  bound.block_size = 0;
  return bound;
}

size_t SubsetCodec::max_body_bytes(size_t count) const {
  return max_told_bytes(count) + max_body_bytes_of(*inner_, max_kept(count));
}

Codec::Encoded SubsetCodec::encode_body(std::span<const float> values, uint32_t sequence,
                                        std::span<std::byte> body) const {
  // All are looked at, kept or not: a NaN must not hide until its turn comes.
  const size_t bad = first_beyond(largest(), values);
  if (bad != kAllFinite) return {0, bad};
  Scratch scratch(num_kept(values.size(), sequence));
  const std::vector<uint32_t>& positions = scratch.positions();
  const size_t told = choose(values, sequence, scratch.positions(), body);
  for (size_t i = 0; i < positions.size(); ++i) scratch.values()[i] = values[positions[i]];
  const Encoded inner = encode_body_of(*inner_, scratch.values(), sequence, body.subspan(told));
  ATOLL_CHECK(inner.first_bad == kAllFinite, "largest() is the inner codec's");
  return {told + inner.bytes, kAllFinite};
}

size_t SubsetCodec::decode_body(std::span<const std::byte> body, uint32_t sequence,
                                std::span<float> values) const {
  Scratch scratch(num_kept(values.size(), sequence));
  const std::vector<uint32_t>& positions = scratch.positions();
  const size_t told = read(body, values.size(), sequence, scratch.positions());
  const size_t bad = decode_body_of(*inner_, body.subspan(told), sequence, scratch.values());
  std::fill(values.begin(), values.end(), 0.0F);
  for (size_t i = 0; i < positions.size(); ++i) values[positions[i]] = scratch.values()[i];
  return bad == kAllFinite ? kAllFinite : positions[bad];
}

}  // namespace atl::codec
