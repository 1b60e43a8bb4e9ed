#include "atoll/data/mixture.h"

#include <gmock/gmock.h>

#include <map>

#include "atoll/base/file.h"
#include "atoll/data/batches.h"
#include "atoll/data/pack.h"
#include "atoll/data/sample_order.h"
#include "atoll/data/store_files.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kLength = 7;

class MixtureTest : public ::testing::Test {
 protected:
  MixtureTest() {
    tokenizer::WordCounts words;
    words.add("the cat sat on the mat, the cat sat on the hat");
    folder_.write(
        "tokenizer.json",
        tokenizer::train_tokenizer(words, {.vocab_size = 280, .min_frequency = 2}, [](int64_t) {}));
    pack_store("a", 400);
    pack_store("b", 60);
    pack_store("c", 150);
  }
  void pack_store(const std::string& name, int num_lines, double share = 0.2) const {
    std::string lines;
    for (int i = 0; i < num_lines; ++i) {
      lines += "{\"text\": \"" + name + " the cat sat on " + std::to_string(i) + "\"}\n";
    }
    folder_.write(name + ".jsonl", lines);
    const Corpus corpus({.inputs = {(folder_ / (name + ".jsonl")).string()}});
    pack(corpus, tokenizer::Tokenizer::load(folder_ / "tokenizer.json"), folder_ / name,
         {.validation_share = share, .overwrite = true}, [](const PackProgress&) {});
  }
  Mixture mix(const std::vector<std::pair<std::string, double>>& named,
              bool overwrite = true) const {
    std::vector<std::pair<fs::path, double>> stores;
    for (const auto& [name, weight] : named) stores.emplace_back(folder_ / name, weight);
    return mix_stores(stores, folder_ / "mix", overwrite);
  }

  TestFolder folder_;
};

TEST_F(MixtureTest, DealsRowsByWeightAndEachStoreInItsOwnOrder) {
  const Mixture mixture = mix({{"a", 5}, {"b", 3}, {"c", 2}});
  const Batches batches(mixture, Split::kTrain,
                        {.sequence_length = kLength, .batch_rows = 10, .seed = 9});
  const Blend start(mixture.weights());
  std::map<const TokenStore*, std::vector<int64_t>> given;
  constexpr int64_t kSteps = 40;
  Blend rule = start;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const int64_t row : batches.rows(step)) {
      const RowPlace place = batches.place(row);
      EXPECT_EQ(place.store, &mixture.stores()[rule.next().source]);
      given[place.store].push_back(place.row);
    }
  }
  const int64_t shares[] = {5, 3, 2};
  for (size_t k = 0; k < 3; ++k) {
    const TokenStore& store = mixture.stores()[k];
    const std::vector<int64_t>& rows = given[&store];
    EXPECT_EQ(std::ssize(rows), kSteps * shares[k]);
    const int64_t num_rows = store.num_tokens(Split::kTrain) / kLength;
    std::vector<int64_t> want;
    for (int64_t pass = 0; std::ssize(want) < std::ssize(rows); ++pass) {
      for (const uint32_t row : sample_order(9, pass, num_rows)) want.push_back(row);
    }
    want.resize(rows.size());
    EXPECT_EQ(rows, want);
  }
  EXPECT_GT(std::ssize(given[&mixture.stores()[1]]),  // The small store went round.
            mixture.stores()[1].num_tokens(Split::kTrain) / kLength);
}

TEST_F(MixtureTest, AStepDoesNotDependOnThoseBefore) {
  const Mixture mixture = mix({{"a", 0.7}, {"b", 0.1}, {"c", 0.2}});
  const BatchOptions options{.sequence_length = kLength, .batch_rows = 16, .seed = 3};
  const Batches forwards(mixture, Split::kTrain, options);
  std::map<int64_t, std::vector<int64_t>> rows;
  for (int64_t step = 0; step < 3000; ++step) rows[step] = forwards.rows(step);
  const Batches jumps(mixture, Split::kTrain, options);
  for (const int64_t step : {2999, 0, 1024, 1023, 2048, 17}) {
    EXPECT_EQ(jumps.rows(step), rows[step]) << step;
  }
  // Rows are read from where they are said to lie.
  std::vector<int64_t> inputs(16 * kLength);
  std::vector<int64_t> targets(inputs.size());
  jumps.fill(rows[7], inputs, targets);
  for (size_t i = 0; i < 16; ++i) {
    std::vector<int64_t> want(kLength);
    const RowPlace place = jumps.place(rows[7][i]);
    place.store->read(Split::kTrain, place.row * kLength, want);
    EXPECT_TRUE(
        std::equal(want.begin(), want.end(), inputs.begin() + static_cast<long>(i) * kLength));
  }
}

TEST_F(MixtureTest, ValidatesInTheSameProportions) {
  const Mixture mixture = mix({{"a", 3}, {"b", 1}});
  const Batches batches(mixture, Split::kValidation, {.sequence_length = kLength, .batch_rows = 1});
  std::map<const TokenStore*, int64_t> counts;
  for (const int64_t row : batches.spread(12)) ++counts[batches.place(row).store];
  EXPECT_EQ(counts[&mixture.stores()[0]], 9);
  EXPECT_EQ(counts[&mixture.stores()[1]], 3);
  // One without validation text is left out; all rows of a store alone are spread evenly.
  pack_store("d", 90, 0);
  const Mixture without = mix({{"a", 1}, {"d", 9}});
  const Batches rest(without, Split::kValidation, {.sequence_length = kLength, .batch_rows = 1});
  const int64_t all = rest.num_rows();
  std::vector<int64_t> want;
  for (int64_t i = 0; i < 5; ++i) want.push_back(i * all / 5);
  EXPECT_EQ(rest.spread(5), want);
  EXPECT_EQ(std::ssize(rest.spread(10 * all)), all);
}

TEST_F(MixtureTest, ItsDigestCoversStoresAndWeightsNotPlaces) {
  const std::string digest = mix({{"a", 5}, {"b", 3}}).digest();
  EXPECT_EQ(mix({{"a", 5}, {"b", 3}}).digest(), digest);
  EXPECT_NE(mix({{"b", 5}, {"a", 3}}).digest(), digest);
  EXPECT_NE(mix({{"a", 5}, {"b", 2}}).digest(), digest);
  EXPECT_NE(mix({{"a", 5}, {"c", 3}}).digest(), digest);
  EXPECT_EQ(Mixture::open(folder_ / "a").digest(), TokenStore::open(folder_ / "a").info().digest());
  mix({{"a", 5}, {"b", 3}});
  fs::create_directory(folder_ / "moved");  // Together they may go anywhere.
  for (const char* name : {"a", "b", "mix"}) {
    fs::rename(folder_ / name, folder_ / "moved" / name);
  }
  EXPECT_EQ(Mixture::open(folder_ / "moved" / "mix").digest(), digest);
}

TEST_F(MixtureTest, RefusesWhatCannotBeMixed) {
  const auto failure = [&](const std::vector<std::pair<std::string, double>>& stores) {
    return message_of([&] { mix(stores); });
  };
  fs::copy(folder_ / "a", folder_ / "copy");
  EXPECT_THAT(failure({{"a", 1}, {"copy", 1}}), HasSubstr("are the same store"));
  EXPECT_THAT(failure({{"a", 1}, {"nothing", 1}}), HasSubstr("nothing' is not a token store"));
  EXPECT_THROW(mix({{"a", 1}}), UsageError);
  EXPECT_THROW(mix({{"a", 1}, {"b", 0}}), UsageError);
  EXPECT_THROW(mix({{"a", 1}, {"b", -1}}), UsageError);
  folder_.write("tokenizer.json", read_file(folder_ / "tokenizer.json") + "\n");
  pack_store("other", 50);
  EXPECT_THAT(failure({{"a", 1}, {"other", 1}}), HasSubstr("different tokenizers"));
  EXPECT_FALSE(fs::exists(folder_ / "mix"));
  fs::create_directory(folder_ / "mix");
  EXPECT_THROW(mix({{"a", 1}, {"b", 1}}), UsageError);  // Not one of ours.
}

TEST_F(MixtureTest, NamesWhatIsWrongWithAMixture) {
  const auto opened = [&] { return message_of([&] { Mixture::open(folder_ / "mix"); }); };
  mix({{"a", 5}, {"b", 3}});
  EXPECT_EQ(opened(), "");
  EXPECT_THAT(message_of([&] { TokenStore::open(folder_ / "mix"); }), HasSubstr("is a mixture"));
  EXPECT_THROW(mix({{"a", 5}, {"b", 3}}, false), UsageError);
  const std::string good = read_file(folder_ / "mix" / kMixtureFileName);
  const auto after = [&](const std::string& from, const std::string& to) {
    std::string edited = good;
    edited.replace(edited.find(from), from.size(), to);
    folder_.write("mix/mixture.json", edited);
    return opened();
  };
  EXPECT_THAT(after("5.0", "6.0"), HasSubstr("was edited"));
  EXPECT_THAT(after("5.0", "-5"), HasSubstr("\"weight\" must be a positive number"));
  EXPECT_THAT(after("\"version\": 1", "\"version\": 2"), HasSubstr("reads \"version\" 1"));
  EXPECT_THAT(after("atoll mixture", "x"), HasSubstr("\"format\" must be"));
  EXPECT_THAT(after("\"stores\"", "\"shops\""), HasSubstr("\"stores\" must be a list"));
  EXPECT_THAT(after("{", "["), HasSubstr("not valid JSON"));
  folder_.write("mix/mixture.json", good);
  pack_store("a", 401);
  EXPECT_THAT(opened(), HasSubstr("its digest differs; mix again"));
  fs::remove_all(folder_ / "a");
  EXPECT_THAT(opened(), HasSubstr("a' is not a token store"));
}

}  // namespace
}  // namespace atl::data
