#include "atoll/codec/topk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/codec/positions.h"
#include "atoll/codec/selection.h"
#include "atoll/codec/subset_codec.h"

namespace atl::codec {
namespace {

class TopkCodec final : public SubsetCodec {
 public:
  /// Without chunks: chunk_size 0 and the share.
  TopkCodec(std::string_view stage, double share, size_t kept_of_chunk, size_t chunk_size,
            std::unique_ptr<Codec> inner)
      : SubsetCodec(stage, share, std::move(inner)),
        kept_of_chunk_(kept_of_chunk),
        chunk_size_(chunk_size) {}

 protected:
  uint8_t kind() const override { return chunk_size_ == 0 ? 11 : 12; }
  size_t num_kept(size_t count, uint32_t /*sequence*/) const override { return max_kept(count); }
  size_t max_kept(size_t count) const override {
    if (chunk_size_ == 0) return kept_of(count);
    return count / chunk_size_ * kept_of_chunk_ + kept_of(count % chunk_size_);
  }
  double told_bits_per_value() const override { return position_bits(share()); }
  size_t max_told_bytes(size_t count) const override {
    return max_position_bytes(count, max_kept(count));
  }

  size_t choose(std::span<const float> values, uint32_t /*sequence*/, std::span<uint32_t> positions,
                std::span<std::byte> told) const override {
    const size_t chunk_size = chunk_size_ == 0 ? values.size() : chunk_size_;
    size_t found = 0;
    for (size_t begin = 0; begin < values.size(); begin += chunk_size) {
      const auto chunk = values.subspan(begin, std::min(chunk_size, values.size() - begin));
      const size_t num_kept = kept_of(chunk.size());
      list_largest(chunk, num_kept, static_cast<uint32_t>(begin), positions.data() + found);
      found += num_kept;
    }
    return write_positions(positions, values.size(), told);
  }
  size_t read(std::span<const std::byte> body, size_t count, uint32_t /*sequence*/,
              std::span<uint32_t> positions) const override {
    const size_t told = read_positions(body, count, positions);
    if (chunk_size_ != 0) check_chunks(count, positions);
    return told;
  }

 private:
  void check_chunks(size_t count, std::span<const uint32_t> positions) const {
    size_t found = 0;
    for (size_t begin = 0; begin < count; begin += chunk_size_) {
      const size_t end = std::min(begin + chunk_size_, count);
      const size_t num_kept = kept_of(end - begin);
      found += num_kept;  // They ascend, and all chunks before this one have theirs.
      if (positions[found - num_kept] >= begin && positions[found - 1] < end) continue;
      throw InputError(fmt::format("the {} values kept of chunk {} do not all lie in it", num_kept,
                                   begin / chunk_size_));
    }
  }
  /// Of one chunk of `size` values, at most chunk_size_ where there are chunks.
  size_t kept_of(size_t size) const {
    if (chunk_size_ != 0) return (kept_of_chunk_ * size + chunk_size_ - 1) / chunk_size_;
    const auto rounded = static_cast<size_t>(std::llround(share() * static_cast<double>(size)));
    return std::clamp<size_t>(rounded, size == 0 ? 0 : 1, size);
  }
  size_t kept_of_chunk_;
  size_t chunk_size_;
};

}  // namespace

std::unique_ptr<Codec> make_topk_codec(std::string_view stage, double share,
                                       std::unique_ptr<Codec> inner) {
  return std::make_unique<TopkCodec>(stage, share, 0, 0, std::move(inner));
}

std::unique_ptr<Codec> make_chunk_topk_codec(std::string_view stage, size_t num_kept,
                                             size_t chunk_size, std::unique_ptr<Codec> inner) {
  const double share = static_cast<double>(num_kept) / static_cast<double>(chunk_size);
  return std::make_unique<TopkCodec>(stage, share, num_kept, chunk_size, std::move(inner));
}

}  // namespace atl::codec
