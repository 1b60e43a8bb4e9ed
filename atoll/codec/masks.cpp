#include "atoll/codec/masks.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/random.h"
#include "atoll/codec/subset_codec.h"

namespace atl::codec {
namespace {

/// What both have in common: nothing is told.
class MaskCodec : public SubsetCodec {
 public:
  using SubsetCodec::SubsetCodec;

 protected:
  double told_bits_per_value() const final { return 0; }
  size_t max_told_bytes(size_t /*count*/) const final { return 0; }
  size_t choose(std::span<const float> values, uint32_t sequence, std::span<uint32_t> positions,
                std::span<std::byte> /*told*/) const final {
    fill(values.size(), sequence, positions);
    return 0;
  }
  size_t read(std::span<const std::byte> /*body*/, size_t count, uint32_t sequence,
              std::span<uint32_t> positions) const final {
    fill(count, sequence, positions);
    return 0;
  }

 private:
  virtual void fill(size_t count, uint32_t sequence, std::span<uint32_t> positions) const = 0;
};

class RollingCodec final : public MaskCodec {
 public:
  RollingCodec(std::string_view stage, size_t stride, std::unique_ptr<Codec> inner)
      : MaskCodec(stage, 1.0 / static_cast<double>(stride), std::move(inner)), stride_(stride) {}

 protected:
  uint8_t kind() const override { return 9; }
  size_t num_kept(size_t count, uint32_t sequence) const override {
    const size_t first = sequence % stride_;
    return count <= first ? 0 : (count - first - 1) / stride_ + 1;
  }
  size_t max_kept(size_t count) const override { return num_kept(count, 0); }

 private:
  void fill(size_t /*count*/, uint32_t sequence, std::span<uint32_t> positions) const override {
    size_t next = sequence % stride_;
    for (uint32_t& position : positions) {
      position = static_cast<uint32_t>(next);
      next += stride_;
    }
  }
  size_t stride_;
};

class RandomCodec final : public MaskCodec {
 public:
  using MaskCodec::MaskCodec;

 protected:
  uint8_t kind() const override { return 10; }
  size_t num_kept(size_t count, uint32_t /*sequence*/) const override { return max_kept(count); }
  size_t max_kept(size_t count) const override {
    const auto rounded = static_cast<size_t>(std::llround(share() * static_cast<double>(count)));
    return std::clamp<size_t>(rounded, count == 0 ? 0 : 1, count);
  }

 private:
  void fill(size_t count, uint32_t sequence, std::span<uint32_t> positions) const override {
    uint64_t bits = 0;
    uint64_t begin = 0;
    for (uint64_t j = 0; j < positions.size(); ++j) {
      bits = j % 2 == 0 ? random_bits(0, sequence, j / 2) : bits >> 32;
      const uint64_t end = (j + 1) * count / positions.size();
      positions[j] = static_cast<uint32_t>(begin + ((bits & 0xffff'ffff) * (end - begin) >> 32));
      begin = end;
    }
  }
};

}  // namespace

std::unique_ptr<Codec> make_rolling_codec(std::string_view stage, size_t stride,
                                          std::unique_ptr<Codec> inner) {
  return std::make_unique<RollingCodec>(stage, stride, std::move(inner));
}

std::unique_ptr<Codec> make_random_codec(std::string_view stage, double share,
                                         std::unique_ptr<Codec> inner) {
  return std::make_unique<RandomCodec>(stage, share, std::move(inner));
}

}  // namespace atl::codec
