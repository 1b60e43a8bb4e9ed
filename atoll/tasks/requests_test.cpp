#include "atoll/tasks/requests.h"

#include <gmock/gmock.h>

#include "atoll/testing/sample_tokenizer.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBegin = 1;  // <s>, which this tokenizer puts before each text.

class RequestsTest : public ::testing::Test {
 protected:
  /// Tokens: 259 the mark for a space, then letters, then a word with its space.
  const tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::from_json(
      data::sample_llama_json({"\u2581", "a", "b", "\u2581a", "\u2581b"}, {"\u2581 a", "\u2581 b"}),
      "t");
  static constexpr int64_t kSpace = 259, kA = 260, kB = 261, kSpaceA = 262, kSpaceB = 263;
};

TEST_F(RequestsTest, SpacesBeforeAnAnswerAreTheAnswers) {
  RequestEncoder encoder(tokenizer_, kBegin, 100);
  for (const char* context : {"a", "a ", "a  "}) {
    const TokenRequest request = encoder.encode(context, std::string(context) == "a" ? " b" : "b");
    EXPECT_THAT(request.context, ElementsAre(kBegin, kSpaceA)) << context;
  }
  EXPECT_THAT(encoder.encode("a ", "b").continuation, ElementsAre(kSpaceB));
  EXPECT_THAT(encoder.encode("a  ", "b").continuation, ElementsAre(kSpace, kSpaceB));
  EXPECT_THAT(encoder.encode("a", "b").continuation, ElementsAre(kB));
}

TEST_F(RequestsTest, NothingBeforeATextIsItsBegin) {
  RequestEncoder encoder(tokenizer_, kBegin, 100);
  const TokenRequest request = encoder.encode("", "a b");
  EXPECT_THAT(request.context, ElementsAre(kBegin));
  EXPECT_THAT(request.continuation, ElementsAre(kSpaceA, kSpaceB));
  // A text that says its begin itself is not given another.
  EXPECT_NE(encoder.encode("", "<s>a").continuation.front(), kBegin);
  EXPECT_THAT(encoder.encode("<s>a", "b").context.front(), kBegin);
  EXPECT_NE(encoder.encode("<s>a", "b").context[1], kBegin);
}

TEST_F(RequestsTest, WhatIsTooLongLosesItsBeginning) {
  RequestEncoder encoder(tokenizer_, kBegin, 3);
  const TokenRequest request = encoder.encode("a a a a b", " a b");
  EXPECT_THAT(request.continuation, ElementsAre(kSpaceA, kSpaceB));
  EXPECT_THAT(request.context, ElementsAre(kSpaceA, kSpaceB));
}

TEST_F(RequestsTest, AnswersThatCannotBeScored) {
  RequestEncoder encoder(tokenizer_, kBegin, 3);
  EXPECT_THAT(message_of([&] { encoder.encode("a", " a a a a"); }), HasSubstr("has 4 tokens"));
  EXPECT_THAT(message_of([&] { encoder.encode("a", ""); }), HasSubstr("has no tokens"));
  EXPECT_THAT(message_of([&] { encoder.encode("", ""); }), HasSubstr("has no tokens"));
}

TEST_F(RequestsTest, WindowsPredictEachTokenOnce) {
  for (int64_t count = 0; count < 14; ++count) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(100 + i);
    const std::vector<TokenRequest> windows = rolling_windows(ids, 7, 4);
    std::vector<int64_t> predicted;
    for (const TokenRequest& window : windows) {
      EXPECT_LE(window.context.size() + window.continuation.size(), 5U);
      const int64_t before = predicted.empty() ? 7 : predicted.back();
      EXPECT_EQ(window.context.back(), before);
      predicted.insert(predicted.end(), window.continuation.begin(), window.continuation.end());
    }
    EXPECT_EQ(predicted, ids);
  }
  EXPECT_THAT(rolling_windows({}, 7, 4), IsEmpty());
  // The last window keeps as much context as fits.
  const std::vector<TokenRequest> two = rolling_windows({1, 2, 3, 4, 5}, 7, 4);
  EXPECT_THAT(two[1].context, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(two[1].continuation, ElementsAre(5));
}

}  // namespace
}  // namespace atl::tasks
