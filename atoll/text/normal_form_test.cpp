#include "atoll/text/normal_form.h"

#include <gtest/gtest.h>

namespace atl::text {
namespace {

std::string in_form(NormalForm form, std::string_view text) {
  std::string scratch;
  return std::string(normalize(form, text, scratch));
}
std::string nfc(std::string_view text) { return in_form(NormalForm::kNfc, text); }

TEST(NormalFormTest, ComposesAndLeavesTheRest) {
  EXPECT_EQ(nfc("cafe\u0301 e"), "caf\u00e9 e");
  EXPECT_EQ(nfc("\u0301e"), "\u0301e");
  EXPECT_EQ(nfc("a\u0300\u0301b"), "\u00e0\u0301b");
  EXPECT_EQ(nfc("\u4e16e\u0301\u4e16"), "\u4e16\u00e9\u4e16");
  EXPECT_EQ(nfc("\u212b\u2126"), "\u00c5\u03a9");  // One character to one other.
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");        // Excluded from composition.
}

TEST(NormalFormTest, OrdersMarksByTheirClass) {
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("a\u0327\u0301"), "\u00e1\u0327");   // A lower class is not in the way,
  EXPECT_EQ(nfc("a\u0300\u0301"), "\u00e0\u0301");   // an equal one is,
  EXPECT_EQ(nfc("a\u0346\u0301"), "a\u0346\u0301");  // though it composes with nothing itself.
}

TEST(NormalFormTest, MakesHangulSyllables) {
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("\ud558\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("\ud55c\u11ab"), "\ud55c\u11ab");
}

TEST(NormalFormTest, KnowsUnicode9AsTheLibraryDoes) {
  EXPECT_EQ(nfc("\U000105d2\u0307"), "\U000105d2\u0307");  // Composes since Unicode 16.
  EXPECT_EQ(nfc("a\u1df6\u0316"), "a\u1df6\u0316");        // A mark since Unicode 10.
}

TEST(NormalFormTest, TakesApart) {
  EXPECT_EQ(in_form(NormalForm::kNfd, "caf\u00e9 \u1e69"), "cafe\u0301 s\u0323\u0307");
  EXPECT_EQ(in_form(NormalForm::kNfd, "\ud55c\ud558"), "\u1112\u1161\u11ab\u1112\u1161");
  EXPECT_EQ(in_form(NormalForm::kNfd, "\ufb01"), "\ufb01") << "a ligature is only compatible";
}

TEST(NormalFormTest, TakesTheCompatibleForTheSame) {
  EXPECT_EQ(in_form(NormalForm::kNfkc, "\ufb01\u00a0\u2460\uff21"), "fi 1A");
  EXPECT_EQ(in_form(NormalForm::kNfkc, "e\u00b4"), "e \u0301") << "a space comes between";
  EXPECT_EQ(in_form(NormalForm::kNfkc, "\u3131\u314f\u3134"), "\uac00\u1102");
  EXPECT_EQ(in_form(NormalForm::kNfkd, "\u3131\u314f\u00e9"), "\u1100\u1161e\u0301");
  EXPECT_EQ(in_form(NormalForm::kNfkc, "\u03d3"), "\u038e") << "a hooked upsilon, in its parts";
  EXPECT_EQ(in_form(NormalForm::kNfkc, "\u32ff"), "\u32ff") << "of Unicode 12";
}

TEST(NormalFormTest, GivesBackWhatIsNormalAlready) {
  const std::string text = "plain, caf\u00e9, \u4e16\u754c, \ud55c, \U0001F600";
  std::string scratch;
  EXPECT_EQ(normalize(NormalForm::kNfc, text, scratch).data(), text.data());
}

}  // namespace
}  // namespace atl::text
