#include "atoll/data/neox_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "atoll/testing/temporary_folder.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> numbers_of(const IndexMap& map) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < map.size(); ++i) numbers.push_back(map.at(i));
  return numbers;
}

PackedNumbers<int32_t> view(const std::vector<int32_t>& sizes) {
  return PackedNumbers<int32_t>(std::as_bytes(std::span(sizes)));
}

// tests/oracle/orders_oracle.py compares the arrays with numpy's; here is what they mean.

TEST(NeoxOrderTest, RowsTileTheShuffledDocumentsWithOneTokenShared) {
  const std::vector<int32_t> sizes = {5, 1, 0, 12, 3, 7};
  const NeoxOptions options{.num_samples = 30, .sequence_length = 4, .seed = 3};
  const NeoxOrder order = neox_order(view(sizes), 0, 6, options);
  EXPECT_EQ(order.num_epochs, 5);  // 28 tokens an epoch, 121 wanted.
  EXPECT_EQ(order.num_rows(), (5 * 28 - 1) / 4);
  // The tokens as (document, position), in the order of doc_idx.
  std::vector<std::pair<int64_t, int64_t>> stream;
  for (const int64_t document : numbers_of(order.doc_idx)) {
    for (int64_t i = 0; i < sizes[static_cast<size_t>(document)]; ++i) {
      stream.emplace_back(document, i);
    }
  }
  for (int64_t row = 0; row < order.num_rows(); ++row) {
    std::vector<std::pair<int64_t, int64_t>> tokens;
    for (const NeoxPiece& piece : order.row(row, view(sizes))) {
      for (int64_t i = piece.begin; i < piece.end; ++i) tokens.emplace_back(piece.document, i);
    }
    const auto begin = stream.begin() + 4 * order.sample(row);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), begin, begin + 5)) << row;
  }
  std::vector<int64_t> samples = numbers_of(order.shuffle_idx);
  std::sort(samples.begin(), samples.end());
  for (size_t i = 0; i < samples.size(); ++i) EXPECT_EQ(samples[i], static_cast<int64_t>(i));
  // Behind its end NeoX begins again, one row early.
  EXPECT_EQ(order.sample(order.num_rows()), order.sample(1));
}

TEST(NeoxOrderTest, OnePartReadsItsDocumentsOnly) {
  const std::vector<int32_t> sizes(20, 9);
  const NeoxOrder order = neox_order(view(sizes), 5, 9, {.num_samples = 8, .sequence_length = 8});
  EXPECT_EQ(order.num_epochs, 2);
  std::vector<int64_t> documents = numbers_of(order.doc_idx);
  std::sort(documents.begin(), documents.end());
  EXPECT_THAT(documents, ElementsAre(5, 5, 6, 6, 7, 7, 8, 8));
}

TEST(NeoxOrderTest, CountsAloneGiveTheSameShuffles) {
  const std::vector<int32_t> sizes = {5, 1, 0, 12, 3, 7};
  const NeoxOptions options{.num_samples = 30, .sequence_length = 4, .seed = 3};
  const NeoxOrder order = neox_order(view(sizes), 0, 6, options);
  const NeoxOrder counts = neox_shuffles(6, 28, options);
  EXPECT_EQ(numbers_of(counts.doc_idx), numbers_of(order.doc_idx));
  EXPECT_EQ(numbers_of(counts.shuffle_idx), numbers_of(order.shuffle_idx));
  EXPECT_EQ(counts.sample_idx.size(), 0U);
}

TEST(NeoxOrderTest, RefusesWhatMakesNoOrder) {
  const std::vector<int32_t> sizes = {1, 0};
  const NeoxOptions options{.num_samples = 1, .sequence_length = 4};
  EXPECT_THAT(message_of([&] { neox_order(view(sizes), 0, 2, options); }),
              HasSubstr("at least two tokens, not 1"));
  EXPECT_THAT(message_of([&] { neox_order(view(sizes), 1, 1, options); }),
              HasSubstr("this part has none"));
  EXPECT_THAT(message_of([&] { neox_shuffles(1, 9, {.num_samples = 1}); }),
              HasSubstr("the sequence length must be 1 to 2^20, not 0"));
  EXPECT_THAT(message_of([&] {
                neox_shuffles(1, 9, {.num_samples = (int64_t{1} << 40) + 1, .sequence_length = 1});
              }),
              HasSubstr("the samples must be 0 to 2^40"));
  EXPECT_THAT(message_of([&] {
                neox_shuffles(1, 9, {.num_samples = int64_t{1} << 40, .sequence_length = 1});
              }),
              HasSubstr("shuffle_idx would have"));
  EXPECT_THAT(message_of([&] {
                neox_shuffles(1000, 2, {.num_samples = int64_t{1} << 32, .sequence_length = 1000});
              }),
              HasSubstr("doc_idx would have"));
  EXPECT_THAT(message_of([&] { neox_shuffles(int64_t{1} << 31, 9, options); }),
              HasSubstr("numbers documents in 32 bits"));
}

TEST(NeoxOrderTest, FilesHaveNeoxsNames) {
  const NeoxOptions options{.num_samples = 147164160, .sequence_length = 2048, .seed = 2};
  EXPECT_EQ(neox_map_name("pile", "train_0", options, true),
            "pile_train_0_indexmap_147164160ns_2048sl_2s");
  EXPECT_EQ(neox_map_name("pile", "train", options, false),
            "pile_train_indexmap_147164160ns_2048sl_2s_packedpi_ac");
}

TEST(NeoxSplitTest, DealsDocumentsAsNeox) {
  EXPECT_THAT(neox_split("969,30,1", 1000), ElementsAre(0, 969, 999, 1000));
  EXPECT_THAT(neox_split("969/30/1", 1000), ElementsAre(0, 969, 999, 1000));
  EXPECT_THAT(neox_split("1", 7), ElementsAre(0, 7, 7, 7));
  EXPECT_THAT(neox_split(" 1, 1 ", 3), ElementsAre(0, 1, 3, 3));  // Halves go to even numbers.
  EXPECT_THAT(neox_split("969,30,1", 3), ElementsAre(0, 3, 3, 3));
  for (const char* bad : {"", "a,b", "1,,2", "-1,2", "nan", "inf", "1 2", "1;2"}) {
    EXPECT_THAT(message_of([&] { neox_split(bad, 9); }), HasSubstr("must be numbers with")) << bad;
  }
  EXPECT_THAT(message_of([&] { neox_split("0,0", 9); }), HasSubstr("has no part"));
  EXPECT_THAT(message_of([&] { neox_split("0,1,1", 3); }), HasSubstr("before document 0"));
}

TEST(NeoxBlendTest, TakesFromTheStoreThatLagsFarthest) {
  const std::vector<double> weights = {2, 1};
  EXPECT_THAT(neox_blend_samples(weights, 300),
              ElementsAre(201, 101));  // Half a per cent more, rounded up.
  const std::vector<int64_t> num_rows = {5, 3};
  const NeoxBlend blend = neox_blend(weights, num_rows);
  EXPECT_THAT(blend.store, ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(blend.row, ElementsAre(0, 0, 1, 2, 1, 3));
  EXPECT_THROW(neox_blend_samples({}, 1), UsageError);
  EXPECT_THROW(neox_blend_samples(std::vector<double>{1, 0}, 1), UsageError);
  EXPECT_THROW(neox_blend_samples(std::vector<double>(255, 1.0), 1), UsageError);
}

class IndexMapTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const IndexMap& map) const {
    write_index_map(map, folder_ / name);
    return folder_ / name;
  }
  std::string fault(const std::string& name, const IndexMap& map) const {
    const fs::path file = write(name, map);
    return message_of([&] { check_index_file(NpyFile(file), file); });
  }

  TestFolder folder_;
};

TEST_F(IndexMapTest, ComparingNamesTheFirstDifference) {
  const IndexMap map{.numbers = std::vector<uint32_t>{4, 2, 9}};
  compare_index_map(map, write("same.npy", map));
  const IndexMap bare{.numbers = std::vector<uint32_t>{4, 2, 9}, .has_header = false};
  compare_index_map(map, write("bare.npy", bare));
  EXPECT_EQ(fs::file_size(folder_ / "bare.npy"), 12U);
  const auto difference = [&](const IndexMap& other) {
    const fs::path file = write("other.npy", other);
    return message_of([&] { compare_index_map(map, file); });
  };
  EXPECT_THAT(difference({.numbers = std::vector<uint32_t>{4, 0, 0}}),
              HasSubstr("2 of 3 numbers differ, the first at entry 1: it has 0, the order 2"));
  EXPECT_THAT(difference({.numbers = std::vector<int32_t>{4, 2, 9}}),
              HasSubstr("has (3,) numbers of int32, the recomputed order (3,) of uint32"));
  EXPECT_THAT(difference({.numbers = std::vector<uint32_t>{4, 2}}), HasSubstr("has (2,) numbers"));
  EXPECT_THAT(difference({.numbers = std::vector<uint32_t>{4, 2}, .has_header = false}),
              HasSubstr("has 8 bytes without a header, the recomputed order 12"));
}

TEST_F(IndexMapTest, NamesOfFilesPromiseTheirContents) {
  const auto numbers = [](std::vector<int64_t> values, bool is_pairs) {
    return IndexMap{.numbers = std::move(values), .is_pairs = is_pairs};
  };
  EXPECT_EQ(fault("a_shuffle_idx.npy", numbers({2, 0, 1}, false)), "");
  EXPECT_THAT(fault("a_shuffle_idx.npy", numbers({2, 0, 0}, false)),
              HasSubstr("0 comes 2 times, the others 1"));
  EXPECT_THAT(fault("a_shuffle_idx.npy", numbers({3, 0, 1}, false)), HasSubstr("never come"));
  EXPECT_THAT(fault("a_shuffle_idx.npy", numbers({INT64_MAX, INT64_MIN, 1}, false)),
              HasSubstr("never come"));
  EXPECT_THAT(fault("a_shuffle_idx.npy", numbers({0, 1}, true)), HasSubstr("has the shape (1, 2)"));
  EXPECT_EQ(fault("a_doc_idx.npy", numbers({7, 6, 6, 7}, false)), "");
  EXPECT_THAT(fault("a_doc_idx.npy", numbers({7, 6, 6, 6}, false)), HasSubstr("6 comes 3 times"));
  EXPECT_THAT(fault("a_doc_idx.npy", numbers({INT64_MAX, INT64_MIN}, false)),
              HasSubstr("never come"));
  EXPECT_EQ(fault("a_sample_idx.npy", numbers({0, 0, 0, 4, 2, 1}, true)), "");
  EXPECT_THAT(fault("a_sample_idx.npy", numbers({0, 0, 1, 4, 1, 4}, true)),
              HasSubstr("row 2 is (1, 4), which does not ascend"));
  EXPECT_THAT(fault("a_sample_idx.npy", numbers({0, 0}, false)), HasSubstr("has the shape (2,)"));
  EXPECT_EQ(fault("a.npy", numbers({5, 5}, false)), "");
}

}  // namespace
}  // namespace atl::data
