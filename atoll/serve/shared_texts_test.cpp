#include "atoll/serve/shared_texts.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace atl::serve {
namespace {

using Text = std::vector<int64_t>;

/// `shared` ids of a kind, then others.
Text text(int64_t kind, int64_t shared, const Text& rest) {
  Text ids(static_cast<size_t>(shared), kind);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

std::vector<std::vector<int64_t>> shares(std::vector<Text> texts) {
  std::ranges::sort(texts);
  std::vector<std::vector<int64_t>> found;
  size_t next = 0;
  for (const SharedTexts& group : share(texts)) {
    EXPECT_EQ(group.begin, next);
    next = group.end;
    found.push_back(
        {static_cast<int64_t>(group.end - group.begin), group.num_shared, group.num_read(texts)});
  }
  EXPECT_EQ(next, texts.size());
  return found;
}

using Found = std::vector<std::vector<int64_t>>;

TEST(SharedTextsTest, EndingsOfAContextAreReadBehindIt) {
  EXPECT_EQ(shares({text(1, 20, {5, 6}), text(1, 20, {7}), text(2, 30, {5}), text(1, 20, {8, 9})}),
            (Found{{3, 20, 25}, {1, 0, 31}}));
}

TEST(SharedTextsTest, AFewTokensThatAllBeginWithAreLessThanWhatNeighboursShare) {
  EXPECT_EQ(shares({text(1, 3, text(2, 20, {5})), text(1, 3, text(2, 20, {6})),
                    text(1, 3, text(3, 20, {5})), text(1, 3, text(3, 20, {6}))}),
            (Found{{2, 23, 25}, {2, 23, 25}}));
}

TEST(SharedTextsTest, ExamplesThatAllBeginWithAreMoreThanWhatNeighboursShare) {
  EXPECT_EQ(shares({text(1, 99, text(2, 9, {5})), text(1, 99, text(2, 9, {6})),
                    text(1, 99, text(3, 9, {5})), text(1, 99, text(3, 9, {6}))}),
            (Found{{4, 99, 99 + 4 * 10}}));
}

TEST(SharedTextsTest, EachTextKeepsATokenOfItsOwn) {
  EXPECT_EQ(shares({text(1, 20, {}), text(1, 21, {}), text(1, 30, {})}),
            (Found{{3, 19, 19 + 1 + 2 + 11}}));
}

TEST(SharedTextsTest, LittleIsNotShared) {
  EXPECT_EQ(shares({text(1, 5, {2}), text(1, 5, {3})}), (Found{{1, 0, 6}, {1, 0, 6}}));
  EXPECT_EQ(shares({{1}}), (Found{{1, 0, 1}}));
  EXPECT_TRUE(shares({}).empty());
}

}  // namespace
}  // namespace atl::serve
