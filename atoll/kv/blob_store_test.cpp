#include "atoll/kv/blob_store.h"

#include <gtest/gtest.h>

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

BlobStore::Blob blob_of(int number, size_t size = 100) {
  return std::make_shared<const Bytes>(size, std::byte(number));
}

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
  BlobStore store({.memory_bytes = 300, .folder = {}, .disk_bytes = 0}, teller());
  for (const int number : {1, 2, 3}) store.put(name_of(number), blob_of(number));
  EXPECT_NE(store.get(name_of(1)), nullptr);
  store.put(name_of(4), blob_of(4));
  EXPECT_FALSE(store.has(name_of(2)));
  EXPECT_EQ(store.get(name_of(2)), nullptr);
  for (const int number : {1, 3, 4}) EXPECT_EQ(*store.get(name_of(number)), *blob_of(number));
  store.put(name_of(5), blob_of(5, 301));  // There is no room for it: all others stay.
  EXPECT_FALSE(store.has(name_of(5)));
  EXPECT_EQ(store.memory_bytes(), 300);
  store.put(name_of(6), blob_of(6, 250));
  store.put(name_of(6), blob_of(7, 200));  // In the place of the one before.
  EXPECT_EQ(store.memory_bytes(), 200);
  EXPECT_EQ(*store.get(name_of(6)), *blob_of(7, 200));
}

TEST_F(BlobStoreTest, WhatIsOnDiskIsThereAgainInTheSameOrder) {
  {
    BlobStore store(options(100, 300), teller());
    for (const int number : {1, 2, 3}) {
      store.put(name_of(number), blob_of(number));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // Files' times tell them apart.
    }
    EXPECT_EQ(store.memory_bytes(), 100);
    EXPECT_EQ(*store.get(name_of(1)), *blob_of(1));
    EXPECT_EQ(store.disk_bytes(), 300);
  }
  std::ofstream(folder_.path() / "kv" / "mine") << "not a blob";
  std::ofstream(file_of(name_of(2)) += "-7.part") << "cut off";
  BlobStore store(options(100, 300), teller());
  EXPECT_EQ(store.disk_bytes(), 300);
  store.put(name_of(4), blob_of(4));
  EXPECT_FALSE(store.has(name_of(2)));
  EXPECT_FALSE(fs::exists(file_of(name_of(2))));
  for (const int number : {1, 3, 4}) EXPECT_EQ(*store.get(name_of(number)), *blob_of(number));
  EXPECT_TRUE(fs::exists(folder_.path() / "kv" / "mine"));
  EXPECT_FALSE(fs::exists(file_of(name_of(2)) += "-7.part"));
  EXPECT_TRUE(told_.empty());
}

TEST_F(BlobStoreTest, AGroupIsPurgedAlone) {
  for (const int64_t disk_bytes : {0, 1000}) {
    BlobStoreOptions how = options(1000, disk_bytes);
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
      EXPECT_FALSE(fs::exists(file_of(name_of(number, 1))));
    }
    EXPECT_EQ(store.memory_bytes(), 200);
    store.remove(name_of(1, 2));
    EXPECT_FALSE(store.has(name_of(1, 2)));
  }
}

TEST_F(BlobStoreTest, WhereItCannotWriteItGoesOnAndSaysSoOnce) {
  BlobStore store(options(1000, 1000), teller());
  std::ofstream(folder_.path() / "kv" / hex(name_of(1).group)) << "a file where its folder goes";
  for (const int number : {1, 2}) store.put(name_of(number), blob_of(number));
  EXPECT_EQ(*store.get(name_of(2)), *blob_of(2));
  EXPECT_EQ(store.disk_bytes(), 0);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_NE(told_[0].find("not kept on disk"), std::string::npos);
}

TEST_F(BlobStoreTest, AFileThatIsGoneIsNoBlob) {
  BlobStore store(options(0, 1000), teller());
  store.put(name_of(1), blob_of(1));
  fs::remove(file_of(name_of(1)));
  EXPECT_EQ(store.get(name_of(1)), nullptr);
  EXPECT_FALSE(store.has(name_of(1)));
  EXPECT_EQ(store.disk_bytes(), 0);
}

TEST_F(BlobStoreTest, AFolderBelongsToOneProcess) {
  const BlobStore store(options(0, 1000), teller());
  EXPECT_THROW(BlobStore(options(0, 1000), teller()), UsageError);
  std::ofstream(folder_.path() / "file") << "none";
  BlobStoreOptions wrong = options(0, 1000);
  wrong.folder = folder_.path() / "file";
  EXPECT_THROW(BlobStore(wrong, teller()), UsageError);
}

TEST_F(BlobStoreTest, ThreadsMayUseItTogether) {
  BlobStore store(options(500, 1500), teller());
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
  EXPECT_LE(store.memory_bytes(), 500);
  EXPECT_LE(store.disk_bytes(), 1500);
}

}  // namespace
}  // namespace atl::kv
