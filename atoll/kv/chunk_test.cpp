#include "atoll/kv/chunk.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "atoll/base/error.h"

namespace atl::kv {
namespace {

Digest secret_of(int number) {
  Digest secret{};
  secret[5] = std::byte(number);
  return secret;
}

std::vector<int64_t> tokens(size_t count, int64_t first = 1) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(Chunk, AreThoseThatTokensFill) {
  const ChunkNames names(secret_of(1), "model");
  EXPECT_TRUE(names.chunks_of(0, tokens(kChunkTokens - 1)).empty());
  EXPECT_EQ(names.chunks_of(0, tokens(kChunkTokens)).size(), 1);
  const auto some = names.chunks_of(0, tokens(3 * kChunkTokens));
  const auto more = names.chunks_of(0, tokens(5 * kChunkTokens + 7));
  ASSERT_EQ(more.size(), 5);
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], more[i]);
}

TEST(Chunk, HangOnAllThatTheyAreOf) {
  std::set<Digest> secrets;
  const auto add = [&](const ChunkNames& names, uint64_t tenant, const std::vector<int64_t>& ids) {
    const auto chunks = names.chunks_of(tenant, ids);
    EXPECT_TRUE(secrets.insert(chunks.back().secret).second);
    EXPECT_TRUE(secrets.insert(chunks.back().check).second);
    EXPECT_TRUE(secrets.insert(name_of({}, chunks.back(), {3, 4}).id).second);
    EXPECT_TRUE(secrets.insert(name_of({}, chunks.back(), {4, 5}).id).second);
    EXPECT_TRUE(secrets.insert(name_of({}, chunks.back(), {3, 5}).id).second);
    const Part rounded{3, 5, Level::kTransform, 1, 7};
    EXPECT_TRUE(secrets.insert(name_of({}, chunks.back(), rounded).id).second);
    EXPECT_TRUE(
        secrets.insert(name_of({}, chunks.back(), {3, 5, Level::kTransform, 1, 8}).id).second);
  };
  const ChunkNames names(secret_of(1), "model");
  add(names, 0, tokens(2 * kChunkTokens));
  add(names, 1, tokens(2 * kChunkTokens));
  add(names, 0, tokens(kChunkTokens));
  add(names, 0, tokens(2 * kChunkTokens, 2));
  std::vector<int64_t> other_first =
      tokens(2 * kChunkTokens);  // Another first token: other keys at the end.
  other_first[0] = 77;
  add(names, 0, other_first);
  add(ChunkNames(secret_of(2), "model"), 0, tokens(2 * kChunkTokens));
  add(ChunkNames(secret_of(1), "model+int8"), 0, tokens(2 * kChunkTokens));
  EXPECT_NE(names.group_of(0), names.group_of(1));
  EXPECT_NE(names.group_of(0), ChunkNames(secret_of(2), "model").group_of(0));
}

TEST(Chunk, ABlobIsOpenedByWhoKnowsItsChunkAlone) {
  const ChunkNames names(secret_of(1), "model");
  const auto chunks = names.chunks_of(4, tokens(2 * kChunkTokens));
  const Bytes blob(100, std::byte{9});
  const BlobName name = name_of(names.group_of(4), chunks[0], {2, 3});
  const Bytes kept = seal(blob, name, chunks[0]);
  EXPECT_EQ(unseal(kept, name, chunks[0]), blob);
  EXPECT_THROW(unseal(kept, name, chunks[1]), InputError);
  EXPECT_THROW(unseal(kept, name_of(names.group_of(4), chunks[0], {3, 4}), chunks[0]), InputError);
  EXPECT_THROW(unseal(kept, name_of(names.group_of(5), chunks[0], {2, 3}), chunks[0]), InputError);
  for (size_t size = 0; size < kept.size(); size += 7) {
    EXPECT_THROW(unseal(std::span(kept).first(size), name, chunks[0]), InputError);
  }
  for (size_t byte = 0; byte < kept.size(); ++byte) {
    Bytes flipped = kept;
    flipped[byte] ^= std::byte{16};
    EXPECT_THROW(unseal(flipped, name, chunks[0]), InputError);
  }
}

TEST(Chunk, OtherTokensWithTheSameSecretAreNotTaken) {
  const auto chunks = ChunkNames(secret_of(1), "model").chunks_of(0, tokens(kChunkTokens));
  const Chunk collides{.secret = chunks[0].secret, .check = secret_of(3)};
  const BlobName name = name_of({}, chunks[0], {0, 1});
  EXPECT_THROW(unseal(seal(Bytes(9), name, collides), name, chunks[0]), InputError);
}

}  // namespace
}  // namespace atl::kv
