// Two servers' desks: what one keeps it has again, also from the other; and nothing else.
#include "atoll/serve/kv_desk.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/testing/sample_profile.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::serve {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int64_t kPage = model::KvPool::kPagePositions;
constexpr int64_t kPages = kv::kChunkTokens / kPage;
constexpr chain::Span kLayers{2, 5};
const std::string kModel = "a model";

std::vector<kv::Chunk> chunks_of(int64_t first_token, uint64_t tenant = 0) {
  std::vector<int64_t> tokens(3 * kv::kChunkTokens);
  std::iota(tokens.begin(), tokens.end(), first_token);
  return kv::ChunkNames({}, kModel).chunks_of(tenant, tokens);
}

std::vector<at::Tensor> random_pages(int64_t count) {
  std::vector<at::Tensor> pages;
  for (int64_t i = 0; i < count; ++i) {
    pages.push_back(at::rand({kLayers.size(), 2, 2 * 4 * kPage}).to(at::kBFloat16));
  }
  return pages;
}

class KvDeskTest : public ::testing::Test {
 protected:
  struct Restored {
    chain::Restore order;
    FoundChunks found;
  };

  void open(const std::string& name, const std::string& model = kModel,
            std::shared_ptr<const Rounding> rounding = nullptr, int64_t memory_bytes = 1 << 24) {
    const fs::path folder = memory_bytes > 0 ? folder_.path() / name : fs::path();
    KvDeskOptions options{.store = {.memory_bytes = memory_bytes, .folder = folder},
                          .model = model,
                          .shape = {.num_heads = 2, .head_size = 4},
                          .rounding = std::move(rounding),
                          .num_threads = 2,
                          .neighbour_rate = 1e12,
                          .patience = milliseconds(500)};
    desks_[name] = std::make_unique<KvDesk>(
        std::move(options),
        KvDesk::Hooks{
            .send =
                [this, name](const std::string& to, const chain::Message& message) {
                  const MutexLock lock(mutex_);
                  sent_.emplace_back(name, to, message);
                },
            .restored =
                [this](const chain::Restore& order, chain::Span pages_layers, FoundChunks found) {
                  EXPECT_EQ(pages_layers, kLayers);
                  const MutexLock lock(mutex_);
                  restored_.push_back({order, std::move(found)});
                },
            .tell =
                [this](const std::string& sentence) {
                  const MutexLock lock(mutex_);
                  told_.push_back(sentence);
                }},
        clock_);
  }
  void TearDown() override { EXPECT_EQ(take_told(), std::vector<std::string>()); }
  std::vector<std::string> take_told() {
    const MutexLock lock(mutex_);
    return std::exchange(told_, {});
  }
  std::string damage_in(const std::string& name) const {
    return "some keys and values that are kept in '" + (folder_.path() / name).string() +
           "' are damaged, and are made anew: by the disk, or another server that sent them";
  }
  /// Messages are delivered until it holds.
  void pump_until(const std::function<bool()>& holds) {
    const Time end = clock_.now() + std::chrono::seconds(30);
    while (!holds()) {
      ASSERT_LT(clock_.now(), end);
      std::deque<std::tuple<std::string, std::string, chain::Message>> sent;
      {
        const MutexLock lock(mutex_);
        sent.swap(sent_);
      }
      for (auto& [from, to, message] : sent) deliver(from, to, std::move(message));
      if (sent.empty()) std::this_thread::sleep_for(milliseconds(1));
    }
  }
  void deliver(const std::string& from, const std::string& to, chain::Message message) {
    const auto found = desks_.find(to);
    if (found == desks_.end()) return;
    if (auto* blobs = std::get_if<chain::Store>(&message)) {
      desks_.at(from)->hear(found->second->store(std::move(*blobs)));
    } else {
      const chain::Fetched answer = found->second->fetch(std::get<chain::Fetch>(message));
      for (const std::string& other : {std::string("who was not asked"), to}) {
        chain::Fetched said = answer;
        if (other != to) said.blobs.assign(said.blobs.size(), {});
        desks_.at(from)->hear(other, std::move(said));
      }
    }
  }
  void keep(const std::string& name, const std::vector<kv::Chunk>& chunks,
            const std::vector<at::Tensor>& pages, const std::string& neighbour = {}) {
    // Behind them comes another one, which nothing was kept of before: then they are there.
    std::vector<kv::Chunk> all = chunks;
    all.push_back(chunks_of(++last_first_token_)[0]);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto begin = pages.begin() + static_cast<std::ptrdiff_t>(i % chunks.size()) * kPages;
      desks_.at(name)->keep({.group = kGroup,
                             .chunk = all[i],
                             .begin = static_cast<int64_t>(i) * kv::kChunkTokens,
                             .first_layer = kLayers.begin,
                             .layers = kLayers,
                             .neighbour = neighbour,
                             .pages = {begin, begin + kPages}});
    }
    const auto last = kv::name_of(kGroup, all.back(), {kLayers.end - 1, kLayers.end});
    const auto has = [&](const std::string& where) {
      return !desks_.at(where)->fetch({.number = 0, .names = {last}}).blobs[0].empty();
    };
    pump_until([&] { return has(name) && (neighbour.empty() || has(neighbour)); });
  }
  static chain::Restore order_of(const std::vector<kv::Chunk>& chunks,
                                 const std::vector<std::string>& holders, Digest group = kGroup) {
    return {.session = {1, 2},
            .epoch = 1,
            .layers = kLayers,
            .group = group,
            .chunks = chunks,
            .holders = holders};
  }
  std::vector<at::Tensor> restore(const std::string& name, const std::vector<kv::Chunk>& chunks,
                                  const std::vector<std::string>& holders = {},
                                  Digest group = kGroup) {
    return restore(name, order_of(chunks, holders, group)).pages;
  }
  FoundChunks restore(const std::string& name, const chain::Restore& order) {
    desks_.at(name)->restore(order, kLayers);
    pump_until([&] {
      const MutexLock lock(mutex_);
      return !restored_.empty();
    });
    const MutexLock lock(mutex_);
    FoundChunks found = std::move(restored_.front().found);
    restored_.pop_front();
    return found;
  }
  static void expect_same(const std::vector<at::Tensor>& found,
                          const std::vector<at::Tensor>& wanted, size_t count) {
    ASSERT_EQ(found.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
  }
  void change_files(const std::string& name, const std::function<void(std::string&)>& change) {
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() / name)) {
      if (!entry.is_regular_file() || entry.path().filename().string().size() != 64) continue;
      std::string bytes;
      {
        std::ifstream in(entry.path(), std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(in), {});
      }
      change(bytes);
      std::ofstream(entry.path(), std::ios::binary) << bytes;
    }
  }
  /// Desks "a" and "b" have it, and all that "b" has is damaged.
  void keep_and_damage_second(const std::vector<kv::Chunk>& chunks,
                              const std::vector<at::Tensor>& pages) {
    for (const char* const name : {"a", "b"}) {
      open(name);
      keep(name, chunks, pages);
    }
    desks_.erase("b");
    change_files("b", [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
    open("b");
  }

  static constexpr Digest kGroup{std::byte{7}};
  const TestFolder folder_;
  SystemClock clock_;
  int64_t last_first_token_ = 1000;
  Mutex mutex_;
  std::deque<std::tuple<std::string, std::string, chain::Message>> sent_ ATOLL_GUARDED_BY(mutex_);
  std::deque<Restored> restored_ ATOLL_GUARDED_BY(mutex_);
  std::vector<std::string> told_ ATOLL_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<KvDesk>> desks_;
};

TEST_F(KvDeskTest, WhatIsKeptComesBackAlsoAfterARestart) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  open("a");
  keep("a", chunks, pages);
  expect_same(restore("a", chunks), pages, 3 * kPages);
  expect_same(restore("a", {chunks[0]}), pages, kPages);
  desks_.clear();
  open("a");
  expect_same(restore("a", chunks), pages, 3 * kPages);
  // Of chunks that go on otherwise, only as far as they are the same.
  auto others = chunks;
  others[2] = chunks_of(5)[2];
  expect_same(restore("a", others), pages, 2 * kPages);
  EXPECT_TRUE(restore("a", chunks_of(5)).empty());
}

TEST_F(KvDeskTest, AnotherTenantHasNoneOfIt) {
  open("a");
  keep("a", chunks_of(1, 1), random_pages(3 * kPages));
  EXPECT_TRUE(restore("a", chunks_of(1, 2)).empty());
  EXPECT_TRUE(restore("a", chunks_of(1, 1), {}, Digest{std::byte{8}}).empty());
}

TEST_F(KvDeskTest, AGroupIsPurgedAndNoOther) {
  open("a");
  const auto pages = random_pages(3 * kPages);
  keep("a", chunks_of(1), pages);
  desks_.at("a")->purge(Digest{std::byte{9}});
  expect_same(restore("a", chunks_of(1)), pages, 3 * kPages);
  desks_.at("a")->purge(kGroup);
  EXPECT_TRUE(restore("a", chunks_of(1)).empty());
  // Nor is what was on its way.
  desks_.at("a")->store(
      {.number = 1, .blobs = {{.name = {.group = kGroup, .id = {}}, .blob = Bytes(9)}}});
  EXPECT_TRUE(desks_.at("a")
                  ->fetch({.number = 2, .names = {{.group = kGroup, .id = {}}}})
                  .blobs[0]
                  .empty());
  desks_.clear();
  open("a");
  EXPECT_TRUE(restore("a", chunks_of(1)).empty());
}

TEST_F(KvDeskTest, ANeighbourHasACopy) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  for (const char* const name : {"a", "b", "c"}) open(name);
  keep("a", chunks, pages, "b");
  pump_until([&] { return desks_.at("a")->neighbour_speed() > 0; });
  desks_.erase("a");
  expect_same(restore("b", chunks), pages, 3 * kPages);
  expect_same(restore("c", chunks, {"nobody", "b"}), pages, 3 * kPages);
  desks_.erase("b");
  expect_same(restore("c", chunks), pages, 3 * kPages);  // It has them itself by now.
}

TEST_F(KvDeskTest, WhatIsDamagedIsNotRestoredAndGoes) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  for (const auto& change : std::initializer_list<std::function<void(std::string&)>>{
           [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; },
           [](std::string& bytes) { bytes.resize(bytes.size() / 2); },
           [](std::string& bytes) { bytes.clear(); }}) {
    open("a");
    keep("a", chunks, pages);
    desks_.clear();
    change_files("a", change);
    open("a");
    EXPECT_TRUE(restore("a", chunks).empty());
    EXPECT_TRUE(restore("a", {chunks[1]}).empty());
    EXPECT_EQ(take_told(), std::vector{damage_in("a")});  // Once.
    keep("a", chunks, pages);                             // Anew.
    expect_same(restore("a", chunks), pages, 3 * kPages);
    desks_.clear();
  }
}

TEST_F(KvDeskTest, WhatIsOfAnotherModelIsNotRestored) {
  const auto chunks = chunks_of(1);
  open("a");
  keep("a", chunks, random_pages(3 * kPages));
  desks_.clear();
  open("a", "another model");
  EXPECT_TRUE(restore("a", chunks).empty());
  take_told();  // Names of another model's chunks are others: here they are damaged.
}

TEST_F(KvDeskTest, WhatAHolderHasDamagedTheNextOneHasWhole) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  keep_and_damage_second(chunks, pages);
  open("c");
  expect_same(restore("c", chunks, {"b", "a"}), pages, 3 * kPages);
}

std::shared_ptr<const Rounding> sample_rounding() {
  const kv::SampleProfile sample(kModel);
  return std::make_shared<const Rounding>(Rounding{
      .profile = sample.profile, .profile_id = sample.id, .turns = [](int64_t, int64_t count) {
        return kv::turns_for(static_cast<size_t>(count));
      }});
}

/// Of a layer the root of the mean of the squared errors.
double error_of(std::span<const at::Tensor> found, std::span<const at::Tensor> wanted,
                int64_t layer) {
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor error = found[i][layer].to(at::kFloat).sub(wanted[i][layer].to(at::kFloat));
    sum += error.square().mean().item<double>();
  }
  return std::sqrt(sum / static_cast<double>(found.size()));
}

TEST_F(KvDeskTest, AnothersComesRoundedWhereThatIsAskedForButForTheLastChunk) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  for (const char* const name : {"a", "b"}) open(name, kModel, sample_rounding());
  open("c");
  keep("a", chunks, pages);
  chain::Restore order = order_of(chunks, {"a"});
  order.round_after_ms = 0;
  const FoundChunks found = restore("b", order);
  // As long as nothing is known of the line the best one; then there is no time left.
  const std::vector<uint8_t> levels{1, 1, 0, 2, 2, 0, 0, 0, 0};  // The last layer is in no group.
  EXPECT_EQ(found.levels, levels);
  ASSERT_EQ(found.pages.size(), 3 * kPages);
  const auto of_chunk = [&](const std::vector<at::Tensor>& all, size_t chunk) {
    return std::span(all).subspan(chunk * kPages, kPages);
  };
  for (size_t chunk = 0; chunk < 3; ++chunk) {
    for (const int64_t layer : {0, 1}) {
      const double error = error_of(of_chunk(found.pages, chunk), of_chunk(pages, chunk), layer);
      EXPECT_EQ(error > 0, chunk < 2) << chunk;
      EXPECT_LT(error, 0.5) << chunk;
    }
    // In no group of the profile's.
    EXPECT_EQ(error_of(of_chunk(found.pages, chunk), of_chunk(pages, chunk), 2), 0) << chunk;
  }
  // What a server has itself comes to the bit, and so does another's without a profile.
  const std::vector<uint8_t> exact(9, 0);
  EXPECT_EQ(restore("a", order).levels, exact);
  const FoundChunks other = restore("c", order);
  EXPECT_EQ(other.levels, exact);
  expect_same(other.pages, pages, 3 * kPages);
  // Nobody else hears of what came rounded.
  expect_same(restore("b", chunks, {"a"}), pages, 3 * kPages);
  // With time enough nothing is rounded.
  open("d", kModel, sample_rounding());
  chain::Restore patient = order;
  patient.round_after_ms = 3'600'000;
  EXPECT_EQ(restore("d", patient).levels, (std::vector<uint8_t>{1, 1, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_F(KvDeskTest, WhatAServerHasHadIsFoundAsItHadIt) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  for (const char* const name : {"a", "b"}) open(name, kModel, sample_rounding());
  keep("a", chunks, pages);
  chain::Restore order = order_of(chunks, {"a"});
  order.round_after_ms = 0;
  const FoundChunks had = restore("b", order);
  ASSERT_GT(*std::ranges::max_element(had.levels), 1);
  open("auditor", kModel, sample_rounding(), 0);
  const auto found_as = [&](const std::vector<uint8_t>& levels,
                            Duration patience = std::chrono::seconds(30)) {
    const chain::Restore asked = order_of(chunks, {"b"});
    auto found = std::async(std::launch::async,
                            [&] { return desks_.at("auditor")->find_as(asked, levels, patience); });
    pump_until([&] { return found.wait_for(milliseconds(0)) == std::future_status::ready; });
    return found.get();
  };
  expect_same(found_as(had.levels), had.pages, 3 * kPages);
  // What it has not had is not there, nor what there are no levels of, nor what comes too late.
  const std::vector<uint8_t> others{2, 2, 0, 2, 2, 0, 0, 0, 0};
  EXPECT_TRUE(found_as(others).empty());
  EXPECT_TRUE(found_as({had.levels.begin(), had.levels.end() - 1}).empty());
  EXPECT_TRUE(found_as(std::vector<uint8_t>(9, 7)).empty());
  EXPECT_TRUE(found_as(had.levels, Duration{}).empty());
  // Who asks keeps nothing of it.
  desks_.at("b")->purge(kGroup);
  EXPECT_TRUE(found_as(had.levels).empty());
}

TEST_F(KvDeskTest, WhatAHolderSendsTooSlowlyIsReadAnew) {
  const auto chunks = chunks_of(1);
  open("a");
  open("b");
  keep("a", chunks, random_pages(3 * kPages));
  chain::Restore order = order_of(chunks, {"a"});
  order.read_ms = 0;
  // How slowly the first one tells.
  EXPECT_EQ(restore("b", order).levels.size(), 3U);
  EXPECT_EQ(restore("a", order).levels.size(), 3U * 3);  // They are here.
}

TEST_F(KvDeskTest, WhatIsDamagedHereIsHadFromAnotherAndKept) {
  const auto chunks = chunks_of(1);
  const auto pages = random_pages(3 * kPages);
  keep_and_damage_second(chunks, pages);
  expect_same(restore("b", chunks, {"a"}), pages, 3 * kPages);
  expect_same(restore("b", chunks), pages, 3 * kPages);
  EXPECT_EQ(take_told(), std::vector{damage_in("b")});
}

TEST(FetchRates, BytesOverTimeOfEachHolderAsLongAsItIsNew) {
  FetchRates rates;
  const Time now{std::chrono::hours(1)};
  EXPECT_EQ(rates.of("a", now), 0);
  rates.note("a", 1000, milliseconds(100), now);
  EXPECT_NEAR(rates.of("a", now), 1e4, 1);
  EXPECT_EQ(rates.of("b", now), 0);
  rates.note("a", 1000, milliseconds(0), now);  // Heard with the one before.
  EXPECT_NEAR(rates.of("a", now), 1700 / 0.07, 10);
  for (int i = 0; i < 20; ++i) rates.note("a", 1000, milliseconds(1000), now);
  EXPECT_NEAR(rates.of("a", now), 1e3, 10);
  EXPECT_EQ(rates.of("a", now + 2 * FetchRates::kLongest), 0);
}

TEST_F(KvDeskTest, AHolderThatSaysNothingIsNotWaitedForForEver) {
  open("a");
  EXPECT_TRUE(restore("a", chunks_of(1), {"gone", "away"}).empty());
}

}  // namespace
}  // namespace atl::serve
