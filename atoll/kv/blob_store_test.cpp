#include "atoll/kv/blob_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::kv {
namespace {

namespace fs = std::filesystem;

BlobName name_of(int number, int group = 0) {
  BlobName name;
  name.group[0] = std::byte(group);
  name.id[31] = std::byte(number);
  return name;
}

SharedBlob blob_of(int number, size_t size = 100) {
  return std::make_shared<const Bytes>(size, std::byte(number));
}

// What a blob of 100 bytes takes.
constexpr int64_t kInMemory = 100 + 256;
constexpr int64_t kOnDisk = 4096 + 256;

class BlobStoreTest : public ::testing::Test {
 protected:
  BlobStoreOptions options(int64_t memory_bytes, int64_t disk_bytes) const {
    return {
        .memory_bytes = memory_bytes, .folder = folder_.path() / "kv", .disk_bytes = disk_bytes};
  }
  auto teller() {
    return [this](const std::string& sentence) { told_.push_back(sentence); };
  }
  fs::path file_of(const BlobName& name) const {
    return folder_.path() / "kv" / hex(name.group) / hex(name.id);
  }

  const TestFolder folder_;
  std::vector<std::string> told_;
};

TEST_F(BlobStoreTest, WhatWasNotUsedForLongestGoesFirst) {
  BlobStore store({.memory_bytes = 3 * kInMemory, .folder = {}, .disk_bytes = 0}, teller());
  for (const int number : {1, 2, 3}) store.put(name_of(number), blob_of(number));
  EXPECT_NE(store.get(name_of(1)), nullptr);
  store.put(name_of(4), blob_of(4));
  EXPECT_FALSE(store.has(name_of(2)));
  EXPECT_EQ(store.get(name_of(2)), nullptr);
  for (const int number : {1, 3, 4}) EXPECT_EQ(*store.get(name_of(number)), *blob_of(number));
  store.put(name_of(5), blob_of(5, 3 * kInMemory));  // There is no room for it: all others stay.
  EXPECT_FALSE(store.has(name_of(5)));
  EXPECT_EQ(store.memory_bytes(), 3 * kInMemory);
  store.put(name_of(6), blob_of(6, 600));
  store.put(name_of(6), blob_of(7, 500));  // In the place of the one before.
  EXPECT_EQ(store.memory_bytes(), 756);
  EXPECT_EQ(*store.get(name_of(6)), *blob_of(7, 500));
  for (int number = 7; number < 50; ++number) store.put(name_of(number), blob_of(number, 0));
  EXPECT_LE(store.memory_bytes(), 3 * kInMemory);  // Empty ones are not for nothing.
  EXPECT_FALSE(store.has(name_of(7)));
}

TEST_F(BlobStoreTest, WhatIsOnDiskIsThereAgainInTheSameOrder) {
  {
    BlobStore store(options(3 * kInMemory, 3 * kOnDisk), teller());
    for (const int number : {1, 2, 3}) {
      store.put(name_of(number), blob_of(number));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // Files' times tell them apart.
    }
    EXPECT_EQ(*store.get(name_of(1)), *blob_of(1));  // From memory, and it counts on disk.
    EXPECT_EQ(store.disk_bytes(), 3 * kOnDisk);
  }
  std::ofstream(folder_.path() / "kv" / "mine") << "not a blob";
  std::ofstream(file_of(name_of(2)) += "-7.part") << "cut off";
  BlobStore store(options(kInMemory, 3 * kOnDisk), teller());
  EXPECT_EQ(store.disk_bytes(), 3 * kOnDisk);
  store.put(name_of(4), blob_of(4));
  EXPECT_FALSE(store.has(name_of(2)));
  EXPECT_FALSE(fs::exists(file_of(name_of(2))));
  for (const int number : {1, 3, 4}) EXPECT_EQ(*store.get(name_of(number)), *blob_of(number));
  EXPECT_TRUE(fs::exists(folder_.path() / "kv" / "mine"));
  EXPECT_FALSE(fs::exists(file_of(name_of(2)) += "-7.part"));
  EXPECT_TRUE(told_.empty());
}

TEST_F(BlobStoreTest, AGroupIsPurgedAlone) {
  for (const int64_t disk_bytes : {int64_t{0}, 9 * kOnDisk}) {
    BlobStoreOptions how = options(9 * kInMemory, disk_bytes);
    if (disk_bytes == 0) how.folder.clear();
    BlobStore store(how, teller());
    for (const int number : {1, 2}) {
      store.put(name_of(number, 1), blob_of(number));
      store.put(name_of(number, 2), blob_of(number));
    }
    store.purge(name_of(0, 1).group);
    for (const int number : {1, 2}) {
      EXPECT_EQ(store.get(name_of(number, 1)), nullptr);
      EXPECT_NE(store.get(name_of(number, 2)), nullptr);
      EXPECT_FALSE(fs::exists(file_of(name_of(number, 1)).parent_path()));
    }
    EXPECT_EQ(store.memory_bytes(), 2 * kInMemory);
    store.remove(name_of(1, 2));
    EXPECT_FALSE(store.has(name_of(1, 2)));
  }
}

TEST_F(BlobStoreTest, WhereItCannotWriteItGoesOnAndSaysSoOnce) {
  BlobStore store(options(9 * kInMemory, 9 * kOnDisk), teller());
  std::ofstream(folder_.path() / "kv" / hex(name_of(1).group)) << "a file where its folder goes";
  for (const int number : {1, 2}) store.put(name_of(number), blob_of(number));
  EXPECT_EQ(*store.get(name_of(2)), *blob_of(2));
  EXPECT_EQ(store.disk_bytes(), 0);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_NE(told_[0].find("not kept on disk"), std::string::npos);
}

TEST_F(BlobStoreTest, AFileThatIsGoneIsNoBlob) {
  BlobStore store(options(0, kOnDisk), teller());
  store.put(name_of(1), blob_of(1));
  fs::remove(file_of(name_of(1)));
  EXPECT_EQ(store.get(name_of(1)), nullptr);
  EXPECT_FALSE(store.has(name_of(1)));
  EXPECT_EQ(store.disk_bytes(), 0);
}

TEST_F(BlobStoreTest, AFileThatCannotBeReadIsGone) {
  BlobStore store(options(0, kOnDisk), teller());
  store.put(name_of(1), blob_of(1));
  fs::remove(file_of(name_of(1)));
  fs::create_directory(file_of(name_of(1)));
  EXPECT_EQ(store.get(name_of(1)), nullptr);
  EXPECT_FALSE(store.has(name_of(1)));
  EXPECT_FALSE(fs::exists(file_of(name_of(1))));
}

TEST_F(BlobStoreTest, FoldersOfGroupsWithoutBlobsAreGone) {
  BlobStore store(options(0, kOnDisk), teller());
  for (int group = 0; group < 20; ++group) store.put(name_of(1, group), blob_of(1));
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path() / "kv"))
    count += entry.is_directory();
  EXPECT_EQ(count, 1);
}

TEST_F(BlobStoreTest, FilesAreTheirOwnersAlone) {
  BlobStore store(options(0, kOnDisk), teller());
  store.put(name_of(1), blob_of(1));
  const fs::path file = file_of(name_of(1));
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(file.parent_path()).permissions(), fs::perms::owner_all);
}

TEST_F(BlobStoreTest, WhatIsPurgedIsNotThereAfterAKillAndItsRoomIsGivenBack) {
  const auto num_entries = [&] {
    return std::distance(fs::directory_iterator(folder_.path() / "kv"), fs::directory_iterator());
  };
  {
    BlobStore store(options(0, 9 * kOnDisk), teller());
    for (const int number : {1, 2, 3}) store.put(name_of(number), blob_of(number));
    store.purge(name_of(0).group);
    EXPECT_FALSE(fs::exists(file_of(name_of(1))));
  }
  const auto left = num_entries();
  BlobStore store(options(0, 9 * kOnDisk), teller());
  EXPECT_LT(num_entries(), left);
  EXPECT_FALSE(store.has(name_of(1)));
  store.put(name_of(1), blob_of(1));
  store.purge(name_of(0).group);
  const auto purged = num_entries();
  store.remove_purged();
  EXPECT_LT(num_entries(), purged);
}

TEST_F(BlobStoreTest, WhatIsPurgedStaysAwayWhateverIsUnderWay) {
  BlobStore store(options(4 * kInMemory, 90 * kOnDisk), teller());
  std::atomic<bool> stops = false;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&store, &stops, thread] {
      for (int i = 0; !stops; ++i) {
        store.get(name_of(i % 20));
        if (thread == 0) store.put(name_of(i % 20), blob_of(i % 20));
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stops = true;
  threads.front().join();  // Nothing is put any more, and some is being read.
  store.purge(name_of(0).group);
  for (size_t i = 1; i < threads.size(); ++i) threads[i].join();
  for (int number = 0; number < 20; ++number) EXPECT_FALSE(store.has(name_of(number))) << number;
  EXPECT_EQ(store.memory_bytes(), 0);
}

TEST_F(BlobStoreTest, AFolderBelongsToOneProcess) {
  const BlobStore store(options(0, kOnDisk), teller());
  EXPECT_THROW(BlobStore(options(0, kOnDisk), teller()), UsageError);
  std::ofstream(folder_.path() / "file") << "none";
  BlobStoreOptions wrong = options(0, kOnDisk);
  wrong.folder = folder_.path() / "file";
  EXPECT_THROW(BlobStore(wrong, teller()), UsageError);
}

TEST_F(BlobStoreTest, ThreadsMayUseItTogether) {
  BlobStore store(options(5 * kInMemory, 15 * kOnDisk), teller());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, thread] {
      for (int i = 0; i < 200; ++i) {
        const int number = (7 * i + thread) % 30;
        store.put(name_of(number), blob_of(number));
        const auto found = store.get(name_of((11 * i) % 30));
        if (found != nullptr) {
          EXPECT_EQ(*found, *blob_of((11 * i) % 30));
        }
        if (i % 50 == 0) store.remove(name_of(number));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store.memory_bytes(), 5 * kInMemory);
  EXPECT_LE(store.disk_bytes(), 15 * kOnDisk);
}

}  // namespace
}  // namespace atl::kv
