#pragma once
// The frame of the codecs that keep some of the values and hand them, packed together, to another
// codec; the others become zero. The body is what tells which are kept, if anything must be told,
// then the body of the inner codec.
#include "atoll/codec/codec.h"

namespace atl::codec {

class SubsetCodec : public Codec {
 public:
  /// `stage` is this codec's part of the name, e.g. "topk(0.2)"; `share` is of the values kept.
  SubsetCodec(std::string_view stage, double share, std::unique_ptr<Codec> inner);
  std::string_view name() const final { return name_; }
  double bits_per_value() const final {
    return told_bits_per_value() + share_ * inner_->bits_per_value();
  }
  /// A value left out is off by itself; a kept one by what the inner codec states, where a block
  /// holds other values than in this codec's order: its largest is at most the largest of all.
  ErrorBound error_bound() const final;
  float largest() const final { return inner_->largest(); }
  bool is_dense() const final { return share_ == 1 && inner_->is_dense(); }

 protected:
  double share() const { return share_; }
  /// How many of `count` values are kept, and the most under any sequence.
  virtual size_t num_kept(size_t count, uint32_t sequence) const = 0;
  virtual size_t max_kept(size_t count) const = 0;
  virtual double told_bits_per_value() const = 0;
  virtual size_t max_told_bytes(size_t count) const = 0;
  /// Fills `positions`, which has num_kept() places, in ascending order, and writes to `told` what
  /// the reader needs beside `count` and `sequence`. Returns the bytes written. Values are finite.
  virtual size_t choose(std::span<const float> values, uint32_t sequence,
                        std::span<uint32_t> positions, std::span<std::byte> told) const = 0;
  /// The same positions from what was told at the start of `body`. Throws InputError.
  virtual size_t read(std::span<const std::byte> body, size_t count, uint32_t sequence,
                      std::span<uint32_t> positions) const = 0;

  size_t max_body_bytes(size_t count) const final;
  Encoded encode_body(std::span<const float> values, uint32_t sequence,
                      std::span<std::byte> body) const final;
  size_t decode_body(std::span<const std::byte> body, uint32_t sequence,
                     std::span<float> values) const final;

 private:
  double share_;
  std::unique_ptr<Codec> inner_;
  std::string name_;
};

}  // namespace atl::codec
