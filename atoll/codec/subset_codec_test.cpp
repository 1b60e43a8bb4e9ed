// Codecs that keep some of the values: which they keep, against the definitions; what they cost.
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "atoll/codec/masks.h"
#include "atoll/codec/positions.h"
#include "atoll/testing/test_values.h"

namespace atl::codec {
namespace {

using testing::HasSubstr;

std::vector<float> round_trip(const std::string& name, std::span<const float> values,
                              uint32_t sequence = 0) {
  const auto codec = make_codec(name);
  return decoded(*codec, encoded(*codec, values, sequence), values.size(), sequence);
}

/// Sets all but the `num_kept` largest of values[begin..end) to zero, by sorting.
void keep_largest(std::span<float> values, size_t num_kept) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const float of_a = std::abs(values[a]);
    const float of_b = std::abs(values[b]);
    return of_a > of_b || (of_a == of_b && a < b);
  });
  for (size_t i = num_kept; i < order.size(); ++i) values[order[i]] = 0;
}

TEST(TopkTest, KeepsTheLargestOfAllAndOfTiesTheFirst) {
  for (const size_t count : {1, 2, 3, 63, 64, 65, 1000, 4097, 100'000}) {
    for (int kind = 0; kind < 7; ++kind) {
      for (const double share : {0.0001, 0.01, 0.2, 0.5, 0.9, 1.0}) {
        SCOPED_TRACE(fmt::format("{} of {} values of kind {}", share, count, kind));
        std::vector<float> expected = draw_values(kind, count);
        const auto kept = round_trip(fmt::format("topk({})+fp32", share), expected);
        const auto num_kept =
            static_cast<size_t>(std::floor(share * static_cast<double>(count) + 0.5));
        keep_largest(expected, std::max<size_t>(1, num_kept));
        ASSERT_EQ(kept, expected);
      }
    }
  }
}

TEST(TopkTest, KeepsTheLargestOfEachChunk) {
  for (const size_t count : {1, 99, 100, 101, 250, 5000}) {
    for (int kind = 0; kind < 7; ++kind) {
      SCOPED_TRACE(fmt::format("{} values of kind {}", count, kind));
      std::vector<float> expected = draw_values(kind, count);
      const auto kept = round_trip("chunk_topk(7/100)+fp32", expected);
      for (size_t begin = 0; begin < count; begin += 100) {
        const size_t size = std::min<size_t>(100, count - begin);
        keep_largest(std::span(expected).subspan(begin, size), (7 * size + 99) / 100);
      }
      ASSERT_EQ(kept, expected);
    }
  }
}

TEST(TopkTest, OtherCountsPerChunkAreRefused) {
  constexpr size_t kCount = 2 * 4096 + 100;  // 64 of each whole chunk, 2 of the rest.
  const auto codec = make_codec("chunk_topk(64/4096)+fp32");
  const auto message = [&](size_t of_first, size_t of_second, size_t of_rest) {
    std::vector<uint32_t> positions;
    const size_t kept[] = {of_first, of_second, of_rest};
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      for (uint32_t i = 0; i < kept[chunk]; ++i) positions.push_back(4096 * chunk + i);
    }
    Bytes bytes = codec->header(kCount, 0);
    Bytes told(max_position_bytes(kCount, positions.size()));
    told.resize(write_positions(positions, kCount, told));
    bytes.insert(bytes.end(), told.begin(), told.end());
    bytes.resize(bytes.size() + 4 * positions.size());
    return message_of([&] { decoded(*codec, bytes, kCount); });
  };
  EXPECT_EQ(message(64, 64, 2), "");
  EXPECT_THAT(message(65, 63, 2), HasSubstr("the 64 values kept of chunk 1 do not"));
  EXPECT_THAT(message(63, 65, 2), HasSubstr("kept of chunk 0 do not"));
  EXPECT_THAT(message(64, 65, 1), HasSubstr("the 2 values kept of chunk 2 do not"));
  EXPECT_THAT(message(64, 63, 3), HasSubstr("kept of chunk 1 do not"));
}

TEST(RollingTest, SendsEachValueOnceInAsManyTurnsAsTheStride) {
  const std::vector<float> values(1003, 1.0F);
  std::vector<float> sum(values.size());
  for (uint32_t turn = 0; turn < 7; ++turn) {
    const auto sent = round_trip("rolling(0.143)+fp32", values, 0xffff'ffff - turn);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(sent[i], i % 7 == (0xffff'ffff - turn) % 7 ? 1.0F : 0.0F);
      sum[i] += sent[i];
    }
  }
  EXPECT_EQ(sum, values);
}

TEST(RandomTest, SendsOneOfEachRunAndAllEquallyOften) {
  constexpr size_t kCount = 1003;
  constexpr size_t kKept = 100;  // round(0.1 * 1003).
  constexpr int kTurns = 4000;
  const std::vector<float> values(kCount, 1.0F);
  std::vector<int> times(kCount);
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    const auto sent = round_trip("random(0.1)+fp32", values, turn);
    for (size_t run = 0; run < kKept; ++run) {
      const size_t begin = run * kCount / kKept;
      const size_t end = (run + 1) * kCount / kKept;
      ASSERT_EQ(std::accumulate(&sent[begin], &sent[end], 0.0F), 1.0F);
      for (size_t i = begin; i < end; ++i) times[i] += sent[i] == 0 ? 0 : 1;
    }
  }
  // Binomial with p of 1/10 or 1/11; 5.5 standard deviations of 19.
  for (const int n : times) ASSERT_NEAR(n, kTurns / 10.03, 105 + 20);
}

TEST(SubsetCodecTest, OnlyWhatKeepsAllValuesIsDense) {
  for (const char* name : {"fp32", "e3m0", "stat2", "topk(1)+int8", "random(1)+fp32"}) {
    EXPECT_TRUE(make_codec(name)->is_dense()) << name;
  }
  for (const char* name : {"cocktail", "sparse_loco", "topk(0.9)+fp32", "rolling(0.5)+fp32",
                           "random(1)+topk(0.5)+fp32", "random(0.5)+topk(1)+fp32"}) {
    EXPECT_FALSE(make_codec(name)->is_dense()) << name;
  }
}

/// The relative squared errors were measured for another program that has these grids.
TEST(SubsetCodecTest, AfterTopkTheGridWithAGapHalvesTheError) {
  const std::vector<float> values = draw_values(0, 1 << 20);
  const auto kept = round_trip("topk(0.2)+fp32", values);
  const auto squares = [](const auto& x) {
    return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  };
  EXPECT_NEAR(squares(kept) / squares(values), 0.650, 0.005);
  const auto error_of = [&](const std::string& form) {
    std::vector<float> lost = round_trip("topk(0.2)+" + form, values);
    for (size_t i = 0; i < lost.size(); ++i) lost[i] -= kept[i];
    return squares(lost) / squares(kept);
  };
  EXPECT_NEAR(error_of("sign3"), 0.0022, 0.0001);
  EXPECT_LE(error_of("int4"), 0.0047);  // The original's; ours does not clip the largest.
}

TEST(SubsetCodecTest, AliasesCostNoMoreThanTheirPapersSay) {
  constexpr size_t kCount = 1 << 18;
  const std::vector<float> values = draw_values(0, kCount);
  const auto bits = [&](const char* name) {
    return 8.0 * static_cast<double>(encoded(*make_codec(name), values).size()) / kCount;
  };
  EXPECT_LE(bits("cocktail"), 0.160);
  EXPECT_LE(bits("sparse_loco"), 0.228);
  const double entropy = -0.2 * std::log2(0.2) - 0.8 * std::log2(0.8);
  EXPECT_LE(bits("topk(0.2)+int4"), 1.03 * entropy + 0.2 * 4.125 + 0.001);
}

TEST(CodecNameTest, AreWrittenInOneWayAndAliasesReplaced) {
  EXPECT_EQ(make_codec("cocktail")->name(), "rolling(0.1)+topk(0.2)+int4");
  EXPECT_EQ(make_codec("sparse_loco")->name(), "chunk_topk(64/4096)+stat2");
  EXPECT_EQ(make_codec("rolling(1e-1)+topk(0.200)+sign3")->name(), "rolling(0.1)+topk(0.2)+sign3");
  EXPECT_EQ(make_codec("chunk_topk(064/4096)+stat2")->name(), "chunk_topk(64/4096)+stat2");
  const Bytes bytes = encoded(*make_codec("topk(0.2)+fp32"), std::vector<float>(10));
  EXPECT_THAT(message_of([&] { decoded(*make_codec("topk(0.20001)+fp32"), bytes, 10); }),
              HasSubstr("other settings than those of topk(0.20001)+fp32"));
}

TEST(CodecNameTest, BadOnesAreRefusedWithWhatIsAllowed) {
  const auto message = [](const std::string& name) {
    return message_of([&] { make_codec(name); });
  };
  for (const char* name : {"", "topk", "topk(0.2)", "topk(0.2)+", "topk(0.2)int4", "+int4", "int4+",
                           "int4+topk(0.2)", "topk(0.2)+int5", "topk(0.2+int4", "topk)+(0.2+int4",
                           "topk(0.2)+cocktail", " int4", "Topk(0.2)+int4"}) {
    EXPECT_THAT(message(name), HasSubstr(fmt::format("unknown codec '{}'", name)));
    EXPECT_THAT(message(name), HasSubstr("topk(F)+"));
  }
  EXPECT_THAT(message(std::string(5000, 'x')), HasSubstr("unknown codec 'xxx"));
  EXPECT_LT(message(std::string(5000, 'x')).size(), 500U);
  for (const char* share : {"", "0", "-0.1", "1.1", "nan", "inf", "0.00001", "0.1 ", "0,1", "x"}) {
    for (const char* stage : {"topk", "random", "rolling"}) {
      EXPECT_THAT(message(fmt::format("{}({})+int4", stage, share)),
                  HasSubstr("the share must be a number from 0.0001 to 1"));
    }
  }
  for (const char* share : {"1", "0.9", "0.3", "0.4"}) {
    EXPECT_THAT(message(fmt::format("rolling({})+int4", share)), HasSubstr("one over a whole"));
  }
  for (const char* chunk : {"", "64", "0/64", "65/64", "/64", "64/", "-1/64", "1/262145", "1/2/3",
                            "99999999999999999999/4"}) {
    EXPECT_THAT(message(fmt::format("chunk_topk({})+int4", chunk)), HasSubstr("1 <= K <= C <= "));
  }
  EXPECT_THAT(message("topk(0.2)+topk(0.2)+int4"), HasSubstr("topk is one stage too many"));
  EXPECT_THAT(message("topk(0.2)+random(0.2)+int4"), HasSubstr("random is one stage too many"));
  EXPECT_THAT(message("random(0.2)+rolling(0.5)+int4"), HasSubstr("rolling is one stage too many"));
}

}  // namespace
}  // namespace atl::codec
