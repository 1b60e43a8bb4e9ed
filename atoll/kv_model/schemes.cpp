#include "atoll/kv_model/schemes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/codec/float_bits.h"
#include "atoll/kv/blob.h"
#include "atoll/kv/vectorwise_coder.h"

namespace atl::kv_model {
namespace {

float float_of(uint16_t bf16) { return codec::float_of(uint32_t{bf16} << 16); }
uint16_t bf16_of(float value) {
  return static_cast<uint16_t>(codec::round_to_bf16(codec::bits_of(value)));
}

class Exact final : public Scheme {
 public:
  std::string name() const override { return "exact"; }
  Bytes encode(const kv::BlobHead& head, std::span<const uint16_t> kv_PCT,
               const kv::Turns&) const override {
    return kv::encode_blob(head, kv_PCT);
  }
  std::vector<uint16_t> decode(std::span<const std::byte> bytes, const kv::BlobHead& head,
                               const kv::Turns&) const override {
    return kv::decode_blob(bytes, head);
  }
};

/// Whole numbers of a token's largest magnitude over `most`, in so many bits each; the scale is a
/// bfloat16.
class Rounded final : public Scheme {
 public:
  explicit Rounded(int bits) : bits_(bits), most_((1 << (bits - 1)) - 1) {}
  std::string name() const override { return fmt::format("{}-bit", bits_); }

  Bytes encode(const kv::BlobHead& head, std::span<const uint16_t> kv_PCT,
               const kv::Turns&) const override {
    ByteWriter writer;
    const size_t size = size_t{head.num_channels} * head.num_tokens;
    for (size_t begin = 0; begin < kv_PCT.size(); begin += size) {
      const auto plane_CT = kv_PCT.subspan(begin, size);
      std::vector<uint8_t> numbers(size);
      for (size_t t = 0; t < head.num_tokens; ++t) {
        float largest = 0;
        for (size_t i = t; i < size; i += head.num_tokens) {
          largest = std::max(largest, std::abs(float_of(plane_CT[i])));
        }
        const uint16_t unit = bf16_of(largest / static_cast<float>(most_));
        writer.put(unit);
        const float inverse = unit == 0 ? 0 : 1 / float_of(unit);
        for (size_t i = t; i < size; i += head.num_tokens) {
          const auto number = static_cast<int>(std::lround(float_of(plane_CT[i]) * inverse));
          numbers[i] = static_cast<uint8_t>(std::clamp(number, -most_, most_) + most_);
        }
      }
      put_packed(numbers, writer);
    }
    return writer.take();
  }

  std::vector<uint16_t> decode(std::span<const std::byte> bytes, const kv::BlobHead& head,
                               const kv::Turns&) const override {
    ByteReader in(bytes);
    const size_t size = size_t{head.num_channels} * head.num_tokens;
    std::vector<uint16_t> kv_PCT(head.num_values());
    for (size_t begin = 0; begin < kv_PCT.size(); begin += size) {
      std::vector<float> units;
      for (size_t t = 0; t < head.num_tokens; ++t) units.push_back(float_of(in.get<uint16_t>()));
      const auto packed = in.get_bytes((size * static_cast<size_t>(bits_) + 7) / 8);
      for (size_t i = 0; i < size; ++i) {
        const auto byte = std::to_integer<int>(packed[bits_ == 8 ? i : i / 2]);
        const int number = bits_ == 8 ? byte : byte >> (4 * (i % 2)) & 15;
        kv_PCT[begin + i] =
            bf16_of(static_cast<float>(number - most_) * units[i % head.num_tokens]);
      }
    }
    return kv_PCT;
  }

 private:
  void put_packed(std::span<const uint8_t> numbers, ByteWriter& writer) const {
    if (bits_ == 8) {
      writer.put_bytes(std::as_bytes(numbers));
      return;
    }
    std::vector<uint8_t> packed((numbers.size() + 1) / 2);
    for (size_t i = 0; i < numbers.size(); ++i) {
      packed[i / 2] = static_cast<uint8_t>(packed[i / 2] | numbers[i] << (4 * (i % 2)));
    }
    writer.put_bytes(std::as_bytes(std::span(packed)));
  }

  int bits_;
  int most_;
};

/// Bins as LMCache has them for every model: keys of the first third of layers and values of the
/// first two layers 32, all others 16.
class Published final : public Scheme {
 public:
  std::string name() const override { return "CacheGen as published"; }
  Bytes encode(const kv::BlobHead& head, std::span<const uint16_t> kv_PCT,
               const kv::Turns&) const override {
    Bytes out;
    kv::encode_vectorwise(kv_PCT, head.num_channels, steps_of(head), {}, out);
    return out;
  }
  std::vector<uint16_t> decode(std::span<const std::byte> bytes, const kv::BlobHead& head,
                               const kv::Turns&) const override {
    ByteReader in(bytes);
    std::vector<uint16_t> kv_PCT(head.num_values());
    kv::decode_vectorwise(in, head.num_channels, steps_of(head), {}, kv_PCT);
    return kv_PCT;
  }

 private:
  static std::vector<float> steps_of(const kv::BlobHead& head) {
    std::vector<float> steps;
    for (int32_t layer = head.first_layer; layer < head.end_layer; ++layer) {
      steps.insert(steps.end(), head.num_channels, 3 * layer < head.end_layer ? 15 : 7);
      steps.insert(steps.end(), head.num_channels, layer < 2 ? 15 : 7);
    }
    return steps;
  }
};

class OfProfile final : public Scheme {
 public:
  OfProfile(const kv::Profile& profile, uint64_t id, kv::Level level, size_t step)
      : profile_(profile), id_(id), level_(level), step_(static_cast<uint8_t>(step)) {}
  std::string name() const override {
    return fmt::format("{} {}", level_ == kv::Level::kVectorwise ? "vectorwise" : "transform",
                       step_);
  }
  Bytes encode(const kv::BlobHead& head, std::span<const uint16_t> kv_PCT,
               const kv::Turns& turns) const override {
    return kv::encode_blob(own(head), kv_PCT, {profile_, id_, turns}, {});
  }
  std::vector<uint16_t> decode(std::span<const std::byte> bytes, const kv::BlobHead& head,
                               const kv::Turns& turns) const override {
    return kv::decode_blob(bytes, own(head), {profile_, id_, turns});
  }

 private:
  kv::BlobHead own(kv::BlobHead head) const {
    head.level = level_;
    head.step = step_;
    return head;
  }

  const kv::Profile& profile_;
  uint64_t id_;
  kv::Level level_;
  uint8_t step_;
};

}  // namespace

std::vector<std::unique_ptr<Scheme>> schemes_without_profile() {
  std::vector<std::unique_ptr<Scheme>> schemes;
  schemes.push_back(std::make_unique<Exact>());
  schemes.push_back(std::make_unique<Rounded>(8));
  schemes.push_back(std::make_unique<Rounded>(4));
  schemes.push_back(std::make_unique<Published>());
  return schemes;
}

std::vector<std::unique_ptr<Scheme>> schemes_of(const kv::Profile& profile, uint64_t id) {
  std::vector<std::unique_ptr<Scheme>> schemes;
  for (size_t i = 0; i < profile.vectorwise.size(); ++i) {
    schemes.push_back(std::make_unique<OfProfile>(profile, id, kv::Level::kVectorwise, i));
  }
  for (size_t i = 0; i < profile.transforms.size(); ++i) {
    schemes.push_back(std::make_unique<OfProfile>(profile, id, kv::Level::kTransform, i));
  }
  return schemes;
}

}  // namespace atl::kv_model
