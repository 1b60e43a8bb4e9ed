// Every value against its definition, chains of fused multiply-adds and a tree, to the bit: for
// each instruction set that this processor has, any number of rows and threads, any type.
#include "atoll/model/products.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "atoll/base/random.h"
#include "atoll/codec/ggml_types.h"

namespace atl::model {
namespace {

using codec::GgmlType;
using weights::StoredTensor;

std::vector<float> normals(size_t count, uint64_t stream) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random_normal(7, stream, i));
  return values;
}

constexpr std::array kBlockTypes = {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ8_0,
                                    GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K};

/// Where a block's numbers in FP16 lie.
std::vector<size_t> halves_of(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_1:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      return {0, 2};
    case GgmlType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

/// Bytes of a tensor whose values are finite, and neither large nor all alike.
std::vector<std::byte> some_blocks(GgmlType type, int64_t num_values, uint64_t stream) {
  const codec::GgmlBlock block = codec::ggml_block(type);
  std::vector<std::byte> bytes(static_cast<size_t>(num_values) / block.num_values *
                               block.num_bytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(random_bits(7, stream, i));
  const auto put = [&](size_t at, uint16_t half) { std::memcpy(&bytes[at], &half, 2); };
  for (size_t begin = 0; begin < bytes.size(); begin += block.num_bytes) {
    const auto sign = static_cast<uint16_t>(random_bits(7, stream, begin) & 0x83ff);
    if (block.num_values > 1) {
      const uint16_t exponent = block.num_values == 256 ? 0x1000 : 0x2000;
      for (const size_t at : halves_of(type)) put(begin + at, sign | exponent);
    }
    if (type == GgmlType::kF16) put(begin, sign | 0x3000);
    if (type == GgmlType::kBF16) put(begin, sign | 0x3f00);
    if (type == GgmlType::kF32) {
      const float value = std::bit_cast<float>(0x3f000000U | sign << 13);
      std::memcpy(&bytes[begin], &value, 4);
    }
  }
  return bytes;
}

struct Stored {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<StoredTensor> tensors;
};

/// Tensors of `outputs` rows each.
Stored some_tensors(std::vector<std::pair<GgmlType, int64_t>> parts, int64_t inputs) {
  Stored stored;
  for (const auto& [type, outputs] : parts) {
    stored.bytes.push_back(some_blocks(type, outputs * inputs, stored.bytes.size()));
    stored.tensors.push_back(
        {.type = type, .bytes = stored.bytes.back(), .num_rows = outputs, .width = inputs});
  }
  return stored;
}

/// 16 chains, then a tree.
float chains(const float* x, const float* weights, int64_t count) {
  std::array<float, 16> sums{};
  for (int64_t k = 0; k < (count + 15) / 16 * 16; ++k) {
    float& sum = sums[static_cast<size_t>(k % 16)];
    sum = k < count ? std::fma(x[k], weights[k], sum) : std::fma(0.0F, 0.0F, sum);
  }
  for (size_t step = 8; step > 0; step /= 2) {
    for (size_t lane = 0; lane < step; ++lane) sums[lane] += sums[lane + step];
  }
  return sums[0];
}

std::vector<float> by_definition(const StoredMatrix& matrix, int64_t rows,
                                 const std::vector<float>& x_MK) {
  std::vector<float> out;
  std::vector<float> weights(static_cast<size_t>(matrix.num_inputs()));
  out.resize(static_cast<size_t>(rows * matrix.num_outputs()));
  for (int64_t n = 0; n < matrix.num_outputs(); ++n) {
    matrix.read_output(n, weights.data());
    for (int64_t m = 0; m < rows; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < matrix.num_inputs(); k += 1024) {
        const int64_t depth = std::min<int64_t>(1024, matrix.num_inputs() - k);
        const float part = chains(&x_MK[static_cast<size_t>(m * matrix.num_inputs() + k)],
                                  &weights[static_cast<size_t>(k)], depth);
        sum = k == 0 ? part : sum + part;
      }
      out[static_cast<size_t>(m * matrix.num_outputs() + n)] = sum;
    }
  }
  return out;
}

/// Which bits say that it is no number depends on who computed it.
std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000U : std::bit_cast<uint32_t>(value));
  }
  return bits;
}

void expect_definition(const StoredMatrix& matrix, const std::vector<int64_t>& row_counts) {
  for (const int64_t rows : row_counts) {
    const std::vector<float> x_MK = normals(static_cast<size_t>(rows * matrix.num_inputs()), 100);
    const std::vector<float> expected = by_definition(matrix, rows, x_MK);
    for (const ProductKernel* kernel : product_kernels()) {
      std::vector<float> found(expected.size(), std::nextafter(0.0F, 1.0F));
      matrix.multiply(rows, x_MK.data(), found.data(), *kernel);
      ASSERT_TRUE(bits_of(found) == bits_of(expected))
          << rows << " rows, " << matrix.num_outputs() << " outputs, " << matrix.num_inputs()
          << " inputs, " << kernel->lanes << " lanes";
    }
  }
}

TEST(ProductsTest, AreSumsInOneOrderForAnyRows) {
  std::vector<int64_t> rows(31);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i) + 1;
  rows.push_back(500);
  const Stored stored = some_tensors({{GgmlType::kF32, 70}}, 300);
  expect_definition(StoredMatrix(stored.tensors), rows);
}

TEST(ProductsTest, OfEveryWidth) {
  for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{1, 1},
                                        {31, 7},
                                        {32, 16},
                                        {33, 255},
                                        {64, 256},
                                        {65, 257},
                                        {3, 1000},
                                        {5, 1024},
                                        {50, 2500}}) {
    for (const GgmlType type : {GgmlType::kF32, GgmlType::kBF16, GgmlType::kF16}) {
      const Stored stored = some_tensors({{type, outputs}}, inputs);
      expect_definition(StoredMatrix(stored.tensors), {1, 5, 20});
    }
  }
}

/// Bytes behind which nothing can be read.
class Guarded {
 public:
  explicit Guarded(std::span<const std::byte> bytes)
      : page_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
        size_((bytes.size() + page_ - 1) / page_ * page_) {
    void* const memory =
        ::mmap(nullptr, size_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    EXPECT_EQ(::mprotect(memory_ + size_, page_, PROT_NONE), 0);
    bytes_ = {memory_ + size_ - bytes.size(), bytes.size()};
    std::memcpy(memory_ + size_ - bytes.size(), bytes.data(), bytes.size());
  }
  ~Guarded() { ::munmap(memory_, size_ + page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  size_t page_, size_;
  std::byte* memory_ = nullptr;
  std::span<const std::byte> bytes_;
};

TEST(ProductsTest, ReadNothingBehindTheLastWeight) {
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kBF16, GgmlType::kQ8_0}) {
    for (const int64_t outputs : {1, 23, 24, 25, 26, 27, 28, 29}) {
      for (const int64_t inputs : {1280, 2048 + 512}) {
        Stored stored = some_tensors({{type, outputs}}, inputs);
        const Guarded guarded(stored.bytes[0]);
        stored.tensors[0].bytes = guarded.bytes();
        expect_definition(StoredMatrix(stored.tensors), {1, 4, 20});
      }
    }
  }
}

TEST(ProductsTest, OfBlocks) {
  for (const GgmlType type : kBlockTypes) {
    const int64_t block = static_cast<int64_t>(codec::ggml_block(type).num_values);
    for (const auto& [outputs, inputs] :
         {std::pair<int64_t, int64_t>{1, block}, {70, 3 * block}, {9, 1024 + block}}) {
      const Stored stored = some_tensors({{type, outputs}}, inputs);
      expect_definition(StoredMatrix(stored.tensors), {1, 2, 3, 4, 5, 6, 7, 9, 40});
    }
  }
}

TEST(ProductsTest, OfBlocksWithExtremeScales) {
  constexpr std::array<uint16_t, 8> kExtremes = {0x0001, 0x83ff, 0x7bff, 0xfbff,
                                                 0x0000, 0x8000, 0x7c00, 0xfc00};
  constexpr size_t kOutputs = kExtremes.size() * kExtremes.size();
  for (const GgmlType type : kBlockTypes) {
    Stored stored = some_tensors({{type, kOutputs}}, 512);
    std::vector<std::byte>& bytes = stored.bytes.front();
    const std::vector<size_t> halves = halves_of(type);
    const size_t num_blocks = bytes.size() / codec::ggml_block(type).num_bytes;
    for (size_t i = 0; i < num_blocks; ++i) {
      const size_t output = i / (num_blocks / kOutputs);
      for (size_t half = 0; half < halves.size(); ++half) {
        std::memcpy(&bytes[i * codec::ggml_block(type).num_bytes + halves[half]],
                    &kExtremes[half == 0 ? output % 8 : output / 8], 2);
      }
    }
    expect_definition(StoredMatrix(stored.tensors), {1, 7});
  }
}

TEST(ProductsTest, OfTypesThatMeetInAPanel) {
  for (const GgmlType type : kBlockTypes) {
    const Stored stored =
        some_tensors({{GgmlType::kBF16, 10}, {type, 50}, {GgmlType::kF32, 7}}, 512);
    expect_definition(StoredMatrix(stored.tensors), {1, 17});
    const Stored alike = some_tensors({{type, 40}, {type, 41}}, 1280);
    expect_definition(StoredMatrix(alike.tensors), {1, 4, 17});
  }
  for (const auto& [first, second] :
       {std::pair{GgmlType::kBF16, GgmlType::kF32}, {GgmlType::kF32, GgmlType::kBF16}}) {
    const Stored stored = some_tensors({{first, 10}, {second, 3}, {first, 40}}, 300);
    expect_definition(StoredMatrix(stored.tensors), {1, 17});
  }
  const Stored stored = some_tensors({{GgmlType::kBF16, 40}, {GgmlType::kBF16, 41}}, 1056);
  expect_definition(StoredMatrix(stored.tensors), {1, 4, 17});
}

TEST(ProductsTest, OfInputsFirst) {
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kBF16, GgmlType::kF16}) {
    Stored stored = some_tensors({{type, 300}}, 70);  // 300 inputs.
    stored.tensors.front().inputs_first = true;
    expect_definition(StoredMatrix(stored.tensors), {1, 17});
  }
}

TEST(ProductsTest, OfPairedRows) {
  Stored stored = some_tensors({{GgmlType::kF32, 24}}, 5);
  const StoredMatrix as_they_lie(stored.tensors);
  stored.tensors.front().order = {.outer = 2, .inner = 4};
  const StoredMatrix paired(stored.tensors);
  expect_definition(paired, {3});
  std::vector<float> expected(5);
  std::vector<float> found(5);
  for (int64_t row = 0; row < 24; ++row) {
    const int64_t at = row % 8;
    as_they_lie.read_output(row - at + (at < 4 ? 2 * at : 2 * at - 7), expected.data());
    paired.read_output(row, found.data());
    EXPECT_EQ(found, expected);
  }
}

TEST(ProductsTest, DoNotDependOnThreads) {
  const Stored stored = some_tensors({{GgmlType::kBF16, 700}}, 300);
  const StoredMatrix matrix(stored.tensors);
  const std::vector<float> x_MK = normals(static_cast<size_t>(900 * 300), 100);
  std::vector<float> first(static_cast<size_t>(900 * 700));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  matrix.multiply(900, x_MK.data(), first.data());
  for (const int count : {2, 3, 5}) {
    at::set_num_threads(count);
    std::vector<float> again(first.size());
    matrix.multiply(900, x_MK.data(), again.data());
    EXPECT_EQ(again, first);
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace atl::model
