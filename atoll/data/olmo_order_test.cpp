#include "atoll/data/olmo_order.h"

#include <gmock/gmock.h>

#include <fstream>

#include "atoll/data/sample_order.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<uint32_t> rows_of(const IndexMap& map) {
  EXPECT_FALSE(map.has_header);
  return std::get<std::vector<uint32_t>>(map.numbers);
}

// tests/oracle/orders_oracle.py compares whole orders with numpy's.

TEST(OlmoOrderTest, CountsEpochsFromZeroAndFitsTheWorld) {
  const OlmoOptions options{.num_rows = 10, .seed = 6190, .epoch = 8};
  const std::vector<uint32_t> all = shuffled_range(6198, 10);
  EXPECT_EQ(rows_of(olmo_order(options, 1, false)), all);
  std::vector<uint32_t> padded = all;
  padded.insert(padded.end(), {all[0], all[1]});
  EXPECT_EQ(rows_of(olmo_order(options, 4, false)), padded);
  EXPECT_EQ(rows_of(olmo_order(options, 4, true)),
            std::vector<uint32_t>(all.begin(), all.begin() + 8));
  std::vector<uint32_t> thrice = all;  // More ranks than rows.
  thrice.insert(thrice.end(), all.begin(), all.end());
  thrice.insert(thrice.end(), all.begin(), all.begin() + 5);
  EXPECT_EQ(rows_of(olmo_order(options, 25, false)), thrice);
  EXPECT_THROW(olmo_order(options, 0, false), UsageError);
  EXPECT_THROW(olmo_order({.num_rows = 10, .epoch = -1}, 1, false), UsageError);
  EXPECT_THROW(olmo_order({.num_rows = 0xffffffff}, 1, false), InputError);
}

TEST(OlmoCoreOrderTest, CountsEpochsFromOneAndKeepsChunksTogether) {
  const OlmoOptions options{.num_rows = 10, .seed = 6197, .epoch = 1};
  const std::vector<uint32_t> all = shuffled_range(6198, 10);
  EXPECT_EQ(rows_of(olmo_core_order(options, {})), all);
  EXPECT_EQ(rows_of(olmo_core_order(options, {.batch_rows = 4})),
            std::vector<uint32_t>(all.begin(), all.begin() + 8));
  std::vector<uint32_t> chunked;
  for (const uint32_t chunk : shuffled_range(6198, 3)) {
    for (uint32_t i = 0; i < 3; ++i) chunked.push_back(3 * chunk + i);
  }
  EXPECT_EQ(rows_of(olmo_core_order(options, {.chunk_rows = 3})), chunked);
  EXPECT_EQ(rows_of(olmo_core_order(options, {.chunk_rows = 3, .batch_rows = 5})), chunked);
  EXPECT_THROW(olmo_core_order({.num_rows = 10, .epoch = 0}, {}), UsageError);
  EXPECT_THROW(olmo_core_order(options, {.chunk_rows = 0}), UsageError);
  EXPECT_THAT(message_of([&] { olmo_core_order(options, {.batch_rows = 11}); }),
              HasSubstr("10 rows are too few"));
  EXPECT_THROW(olmo_core_order(options, {.chunk_rows = 11}), InputError);
  EXPECT_THROW(olmo_order(options, 11, true), InputError);
}

TEST(OlmoCoreOrderTest, FilesHaveItsNames) {
  const OlmoOptions options{.num_rows = 1000, .seed = 34521, .epoch = 2};
  EXPECT_EQ(olmo_core_name(options, {}), "global_indices_dataset_size1000_epoch2_seed34521_v1.npy");
  EXPECT_EQ(olmo_core_name(options, {.chunk_rows = 8}),
            "global_indices_chunk8_dataset_size1000_epoch2_seed34521_v1.npy");
  EXPECT_EQ(olmo_core_name(options, {.chunk_rows = 8, .batch_rows = 32}),
            "global_indices_chunk8_epoch2_seed34521_size992.npy");
}

TEST(OlmoFilesTest, RowsDropTheTailOfEachFile) {
  const TestFolder folder;
  const fs::path first = folder.write("a.npy", std::string("\1\0\2\0\3\0\4\0\5\0", 10));
  const fs::path small = folder.write("b.npy", std::string("\7\0", 2));
  const fs::path last = folder.write("c.npy", std::string("\6\0\7\0", 4));
  const OlmoFiles files({first, small, last}, NumberType::kU16, 2);
  EXPECT_EQ(files.num_rows(), 3);
  EXPECT_THAT(files.row(1).ids, ElementsAre(3, 4));
  EXPECT_EQ(files.row(1).begin, 2);
  EXPECT_THAT(files.row(2).ids, ElementsAre(6, 7));
  EXPECT_EQ(files.row(2).file, last.string());
  const fs::path odd = folder.write("d.npy", "abc");
  EXPECT_THAT(message_of([&] { OlmoFiles({odd}, NumberType::kU16, 2); }),
              HasSubstr("d.npy' has 3 bytes, which are not whole tokens of uint16"));
  const fs::path real = folder.write("e.npy", "\x93NUMPY");
  EXPECT_THAT(message_of([&] { OlmoFiles({real}, NumberType::kU16, 2); }),
              HasSubstr("has numpy's header"));
  EXPECT_THAT(message_of([&] { OlmoFiles({small}, NumberType::kU16, 2); }),
              HasSubstr("no row of 2 tokens"));
}

}  // namespace
}  // namespace atl::data
