#include "atoll/grammar/matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "atoll/grammar/json_schema.h"

namespace atl::grammar {
namespace {

constexpr TokenId kEnd = 0;

/// All bytes, and pieces of JSON that cross every border.
std::shared_ptr<const Vocabulary> vocabulary() {
  std::vector<std::string> tokens{""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece :
       {"{\"", "\":",        "\": ",  "\",",          "\", \"",      "\"}",  "}}",
        "]}",  "[[",         "]]",    "],",           "12",          "123",  "ab",
        "abc", "abcdefghij", "name",  "\"name\": \"", "true",        "e\"}", ".5",
        "é",   "\xc3",       "\\u00", "\\\"",         ", ",          "\n  ", "  ",
        "1,",  "1]",         "-1",    "null}",        "\"a\",\"b\"", "a\"]"}) {
    tokens.emplace_back(piece);
  }
  return std::make_shared<const Vocabulary>(tokens, std::vector<TokenId>{kEnd});
}

std::shared_ptr<const TokenMasks> masks(std::string_view schema, SchemaOptions options = {}) {
  return std::make_shared<const TokenMasks>(schema_grammar(schema, options), vocabulary());
}

const std::string_view kSchemas[] = {
    "true",
    R"({"type": "string", "minLength": 2, "maxLength": 5})",
    R"({"type": "string", "pattern": "[0-9]é$", "maxLength": 7})",
    R"({"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2,
        "maxItems": 4})",
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", "abc"]}, "minItems": 1}},
        "required": ["name", "tags"], "additionalProperties": false})",
    R"({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "number"}]}})",
};

/// What a token is allowed by: whether the bytes fit. Nothing is kept and nothing cut.
TokenMask slow_mask(const TokenMasks& masks, const Place& place) {
  TokenMask mask(masks.vocabulary().size());
  for (TokenId id = 1; static_cast<size_t>(id) < masks.vocabulary().size(); ++id) {
    const Place next = Machine(masks.grammar()).advance(place, masks.vocabulary().bytes(id));
    if (!next.tops.empty() || next.may_end) mask.allow(id);
  }
  if (place.may_end) mask.allow(kEnd);
  return mask;
}

TokenId pick(const TokenMask& mask, std::mt19937_64& random) {
  std::vector<TokenId> allowed;
  for (TokenId id = 0; static_cast<size_t>(id) < mask.words().size() * 64; ++id) {
    if (mask.allows(id)) allowed.push_back(id);
  }
  return allowed.empty() ? -1 : allowed[random() % allowed.size()];
}

TEST(MatcherTest, MaskIsExactlyWhatAdvanceTakes) {
  std::mt19937_64 random(1);
  for (const std::string_view schema : kSchemas) {
    SchemaOptions options;
    options.limits.depth = 6;
    const auto all = masks(schema, options);
    for (int walk = 0; walk < 30; ++walk) {
      Matcher matcher(all);
      for (int i = 0; i < 40 && !matcher.is_done(); ++i) {
        const TokenMask mask = matcher.mask();
        ASSERT_EQ(mask, slow_mask(*all, matcher.place())) << schema;
        const TokenId token = pick(mask, random);
        ASSERT_GE(token, 0) << "nothing is allowed: " << schema;
        ASSERT_TRUE(matcher.advance(token));
      }
    }
  }
}

TEST(MatcherTest, ReplayGivesTheSamePlacesAndMasks) {
  std::mt19937_64 random(2);
  const auto all = masks(kSchemas[4]);
  Matcher matcher(all);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 60 && !matcher.is_done(); ++i) {
    tokens.push_back(pick(matcher.mask(), random));
    ASSERT_TRUE(matcher.advance(tokens.back()));
  }
  Matcher again(masks(kSchemas[4]));  // Nothing kept from before.
  EXPECT_EQ(again.advance(tokens), tokens.size());
  EXPECT_EQ(again.place(), matcher.place());
  EXPECT_EQ(again.mask(), matcher.mask());
}

TEST(MatcherTest, RollBackAndCopiesGoTheirOwnWays) {
  std::mt19937_64 random(3);
  Matcher matcher(masks("true"));
  ASSERT_TRUE(matcher.advance('[' + 1));
  const TokenMask before = matcher.mask();
  const Matcher copy = matcher;
  for (int i = 0; i < 20 && !matcher.is_done(); ++i) {
    ASSERT_TRUE(matcher.advance(pick(matcher.mask(), random)));
  }
  matcher.roll_back(matcher.num_tokens() - 1);
  EXPECT_EQ(matcher.mask(), before);
  EXPECT_EQ(copy.mask(), before);
  EXPECT_EQ(matcher.num_tokens(), 1U);
}

TEST(MatcherTest, EndsOnlyWhereTheTextMay) {
  Matcher matcher(masks(R"({"type": "array", "maxItems": 0})", {.blanks = Blanks::kNone}));
  EXPECT_FALSE(matcher.advance(kEnd));
  EXPECT_TRUE(matcher.advance('[' + 1));
  EXPECT_FALSE(matcher.mask().allows(kEnd));
  EXPECT_TRUE(matcher.advance(']' + 1));
  EXPECT_EQ(matcher.mask().count(), 1U);
  EXPECT_TRUE(matcher.advance(kEnd));
  EXPECT_TRUE(matcher.is_done());
  EXPECT_EQ(matcher.mask().count(), 0U);
  EXPECT_FALSE(matcher.advance(kEnd));
  matcher.roll_back(1);
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(matcher.is_done());
}

}  // namespace
}  // namespace atl::grammar
