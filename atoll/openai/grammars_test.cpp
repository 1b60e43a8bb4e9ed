#include "atoll/openai/grammars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/grammar/matcher.h"
#include "atoll/testing/sample_tokenizer.h"

namespace atl::openai {
namespace {

struct GrammarsTest : testing::Test {
  static Structure of_schema(const std::string& schema) {
    return {.kind = Structure::Kind::kSchema, .field = "guided_json", .schema = schema};
  }
  Grammars grammars{std::make_shared<tokenizer::Tokenizer>(tokenizer::Tokenizer::from_json(
                        data::sample_llama_json({"\u2581"}, {}), "sample")),
                    300,
                    {2}};
};

TEST_F(GrammarsTest, TheSameFormIsMadeOnce) {
  const auto first = grammars.find(of_schema("true"), grammar::ToolForm::kHermes);
  EXPECT_EQ(grammars.find(of_schema("true"), grammar::ToolForm::kHermes), first);
  for (size_t i = 0; i < Grammars::kMaxForms - 1; ++i) {
    grammars.find(of_schema(R"({"const": )" + std::to_string(i) + "}"), grammar::ToolForm::kHermes);
  }
  EXPECT_EQ(grammars.find(of_schema("true"), grammar::ToolForm::kHermes), first);
  EXPECT_EQ(grammars.find({}, grammar::ToolForm::kHermes), nullptr);
}

TEST_F(GrammarsTest, SpecialTokensAreNoTextAndOnlyEndsEnd) {
  const auto masks = grammars.find(of_schema(R"({"type": "string"})"), grammar::ToolForm::kHermes);
  grammar::Matcher matcher(masks);
  EXPECT_EQ(matcher.mask().count(), 1U);
  ASSERT_TRUE(matcher.advance(3 + '"'));
  for (const grammar::TokenId id : {0, 1, 2, 299}) EXPECT_FALSE(matcher.mask().allows(id));
  ASSERT_TRUE(matcher.advance(3 + '"'));
  EXPECT_TRUE(matcher.mask().allows(2));
  EXPECT_EQ(matcher.mask().count(), 1U);
}

TEST_F(GrammarsTest, RefusalsNameTheField) {
  try {
    grammars.find(of_schema(R"({"unevaluatedItems": false})"), grammar::ToolForm::kHermes);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "guided_json");
    EXPECT_THAT(error.what(), testing::HasSubstr("unevaluatedItems"));
  }
}

}  // namespace
}  // namespace atl::openai
