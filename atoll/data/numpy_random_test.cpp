#include "atoll/data/numpy_random.h"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "atoll/data/sample_order.h"

namespace atl::data {
namespace {

using ::testing::ElementsAre;

// All expected numbers are from numpy 2.4.6.

std::array<uint64_t, 4> stretched(const std::vector<uint32_t>& entropy) {
  return SeedSequence(entropy).generate();
}

TEST(SeedSequenceTest, EqualsNumpyForSeedsOfAnyLength) {
  const auto of_zero = ElementsAre(15793235383387715774U, 12390638538380655177U,
                                   2361836109651742017U, 3188717715514472916U);
  EXPECT_THAT(stretched({0}), of_zero);
  EXPECT_THAT(stretched({}), of_zero);
  EXPECT_THAT(stretched({0, 0, 1}), ElementsAre(8649202198168436674U, 9572846202106059917U,
                                                376522480218935423U, 13248531839743007554U));
  EXPECT_THAT(stretched({0, 0, 0, 0, 1}), ElementsAre(4881901421217228719U, 14018784465689921001U,
                                                      18140990248870438416U, 920197822552678056U));
  EXPECT_THAT(stretched(std::vector<uint32_t>(8, ~0U)),
              ElementsAre(10168828190493638947U, 4616211851522120706U, 16834956316653214572U,
                          5085115839592316930U));
}

TEST(Pcg64Test, EqualsNumpy) {
  Pcg64 generator(6198);
  EXPECT_EQ(generator.next64(), 12993904571665206773U);
  EXPECT_EQ(generator.next64(), 5279284732208017281U);
  EXPECT_EQ(generator.next64(), 8264598822411623240U);
  const std::vector<uint32_t> words(8, ~0U);
  Pcg64 wide{SeedSequence(words)};
  EXPECT_EQ(wide.next64(), 1317050306920350490U);
  EXPECT_EQ(wide.next64(), 16321805655836075685U);
}

TEST(Pcg64Test, ShufflesAsNumpy) {
  std::vector<uint32_t> values = shuffled_range(6198, 1000);
  values.resize(5);
  EXPECT_THAT(values, ElementsAre(615, 832, 881, 9, 648));
  values = shuffled_range(6198, 100'000);
  EXPECT_EQ(values[0], 27125U);
  EXPECT_EQ(values[1], 8068U);
  EXPECT_EQ(values.back(), 61313U);
  values = shuffled_range(34522, 1'000'003);
  EXPECT_EQ(values[0], 661177U);
  EXPECT_EQ(values[1], 550375U);
  EXPECT_EQ(values.back(), 99091U);
}

TEST(RandomStateTest, ShufflesAsNumpy) {
  std::vector<int64_t> ten(10);
  std::iota(ten.begin(), ten.end(), 0);
  RandomState last_seed(~0U);
  shuffle(last_seed, ten);
  EXPECT_THAT(ten, ElementsAre(6, 9, 5, 1, 8, 0, 7, 4, 2, 3));

  std::vector<uint32_t> values(100'000);
  std::iota(values.begin(), values.end(), 0U);
  RandomState generator(1234);
  shuffle(generator, values);
  shuffle(generator, values);  // The second goes on where the first stopped.
  EXPECT_EQ(values[0], 43539U);
  EXPECT_EQ(values[1], 61216U);
  EXPECT_EQ(values.back(), 75540U);
}

TEST(RandomStateTest, DrawsFrom64BitsWhere32AreTooFew) {
  RandomState generator(7);  // randint(0, max + 1, dtype=int64) draws by the same rule.
  EXPECT_EQ(below_or_equal(generator, (uint64_t{1} << 40) + 4), 752595690692U);
  EXPECT_EQ(below_or_equal(generator, (uint64_t{1} << 40) + 4), 108744157686U);
  RandomState narrow(7);
  EXPECT_EQ(below_or_equal(narrow, uint64_t{1} << 32), 1322904761U);
  EXPECT_EQ(below_or_equal(narrow, uint64_t{1} << 32), 1133316631U);
  RandomState largest(0);
  EXPECT_EQ(below_or_equal(largest, 0xffffffffU), 2357136044U);
  EXPECT_EQ(below_or_equal(largest, 0), 0U);  // Draws nothing.
  EXPECT_EQ(below_or_equal(largest, 0xffffffffU), 2546248239U);
}

}  // namespace
}  // namespace atl::data
