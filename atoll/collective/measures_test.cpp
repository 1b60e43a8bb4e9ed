#include "atoll/collective/measures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/random.h"

namespace atl::collective {
namespace {

using testing::ElementsAre;
using Values = std::vector<float>;

TEST(DotTest, IsThatOfAllValues) {
  for (const size_t count : {0U, 1U, 31U, 32U, 33U, 1000U}) {
    Values a(count);
    Values b(count);
    double expected = 0;
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(i) * 0.5F;
      b[i] = i % 3 == 0 ? -2.0F : 1.0F;
      expected += static_cast<double>(i) * 0.5 * (i % 3 == 0 ? -2.0 : 1.0);
    }
    EXPECT_EQ(dot(a, b), expected);  // Nothing is rounded.
    EXPECT_EQ(sum_of_squares(a), dot(a, a));
  }
}

TEST(SegmentMeasuresTest, AreOfAllPairsOfThoseWhoContribute) {
  const Sampling sampling(3, 4);
  Values room(16);
  SegmentMeasures measures(4, room);
  measures.add(0, Values{1, 0, 0, 2}, 0, sampling);
  measures.add(1, Values{0, 3, 0, -1}, 0, sampling);
  measures.add(3, Values{1, 1, 1, 1}, 0, sampling);
  measures.end();
  std::vector<double> squares(4, 100);
  std::vector<double> products(10, 0);
  measures.add_to(squares, products);
  EXPECT_THAT(squares, ElementsAre(105, 110, 100, 104));
  EXPECT_THAT(products, ElementsAre(5, -2, 10, 0, 0, 0, 3, 2, 0, 4));
}

TEST(SegmentMeasuresTest, WhereNobodyIsComparedSquaresAreAll) {
  SegmentMeasures measures(2, {});
  measures.add(0, Values{1, 2}, 0, Sampling(3, 2));
  measures.add(1, Values{3, 4}, 0, Sampling(3, 2));
  measures.end();
  std::vector<double> squares(2);
  measures.add_to(squares, {});
  EXPECT_THAT(squares, ElementsAre(5, 25));
}

/// The values say where they are.
Values sample_of(int64_t round, size_t count, size_t segment_values) {
  const Sampling sampling(round, count);
  Values out;
  for (size_t begin = 0; begin < count; begin += segment_values) {
    Values segment(std::min(segment_values, count - begin));
    for (size_t i = 0; i < segment.size(); ++i) segment[i] = static_cast<float>(begin + i);
    const size_t before = out.size();
    out.resize(before + sampling.most_of(segment.size()));
    out.resize(before + sampling.take(begin, segment, std::span(out).subspan(before)));
  }
  return out;
}

TEST(SamplingTest, OfFewValuesAllAreTaken) {
  for (const size_t count : {size_t{1}, size_t{1000}, Sampling::kEnough}) {
    EXPECT_EQ(sample_of(1, count, 700).size(), count);
  }
}

TEST(SamplingTest, OfManyEnoughAreTakenEvenly) {
  const size_t count = 10'000'019;  // Exact as floats.
  const size_t stride = 39;
  const Values first = sample_of(1, count, size_t{1} << 18);
  EXPECT_NEAR(static_cast<double>(first.size()), static_cast<double>(count) / stride, 1000);
  for (size_t i = 1; i < first.size(); ++i) {
    ASSERT_GT(first[i], first[i - 1]) << "each once, in order";
    ASSERT_LT(first[i] - first[i - 1], 3 * stride * Sampling::kBlock);
  }
  std::vector<size_t> places(stride);  // Of blocks within their groups.
  for (size_t i = 0; i < first.size(); i += Sampling::kBlock) {
    places[static_cast<size_t>(first[i]) % (size_t{1} << 18) / Sampling::kBlock % stride] += 1;
  }
  for (const size_t number : places) EXPECT_NEAR(static_cast<double>(number), 411, 90);
  EXPECT_EQ(sample_of(1, count, size_t{1} << 18), first) << "the same wherever it is taken";
  EXPECT_NE(sample_of(2, count, size_t{1} << 18), first) << "other ones in another round";
}

TEST(SamplingTest, CosinesInItAreThoseOfAllValues) {
  const size_t count = 4'000'000;
  Values a(count);
  Values b(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<float>(random_uniform(1, 2, i) - 0.5);
    b[i] = 0.5F * a[i] + static_cast<float>(random_uniform(1, 3, i) - 0.5);
  }
  const Sampling sampling(5, count);
  Values some_of_a(sampling.most_of(count));
  Values some_of_b(sampling.most_of(count));
  some_of_a.resize(sampling.take(0, a, some_of_a));
  some_of_b.resize(sampling.take(0, b, some_of_b));
  const auto cosine = [](const Values& x, const Values& y) {
    return dot(x, y) / std::sqrt(sum_of_squares(x) * sum_of_squares(y));
  };
  EXPECT_NEAR(cosine(some_of_a, some_of_b), cosine(a, b), 6e-3);
}

}  // namespace
}  // namespace atl::collective
