#include "atoll/grammar/json_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "atoll/base/error.h"
#include "atoll/grammar/machine.h"

namespace atl::grammar {
namespace {

bool takes(const Grammar& grammar, std::string_view text) {
  Machine machine(grammar);
  return machine.advance(machine.begin(), text).may_end;
}

std::string refusal(std::string_view schema, const SchemaOptions& options = {}) {
  try {
    schema_grammar(schema, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

struct Sample {
  std::string_view schema;
  std::vector<std::string_view> right;
  std::vector<std::string_view> wrong;
};

class JsonSchemaTest : public testing::TestWithParam<Sample> {};

TEST_P(JsonSchemaTest, TakesWhatIsRightOnly) {
  const auto grammar = schema_grammar(GetParam().schema, {.blanks = Blanks::kNone});
  for (const std::string_view text : GetParam().right) EXPECT_TRUE(takes(*grammar, text)) << text;
  for (const std::string_view text : GetParam().wrong) EXPECT_FALSE(takes(*grammar, text)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Scalars, JsonSchemaTest,
    testing::Values(
        Sample{
            "true", {"null", "[1,[]]", "{\"a\":{\"a\":1}}", "-0.5e+3"}, {"", "nul", "01", "{a}"}},
        Sample{R"({"type": "boolean"})", {"true", "false"}, {"null", "truefalse"}},
        Sample{R"({"type": ["integer", "null"]})", {"0", "-12", "null"}, {"1.5", "1e3", "\"\""}},
        Sample{R"({"type": "number"})", {"1.5", "1e3", "-0"}, {"1.", ".5", "+1", "1e999"}},
        Sample{R"({"type": "integer", "minimum": -3, "maximum": 12})",
               {"-3", "0", "9", "10", "12", "-0"},
               {"-4", "13", "100", "-10", "1.0"}},
        Sample{R"({"type": "number", "exclusiveMinimum": 0.5, "maximum": 10})",
               {"0.51", "1", "9.99", "10", "10.000"},
               {"0.5", "0.50", "0", "-1", "10.01", "11"}},
        Sample{
            R"({"type": "number", "minimum": 2, "exclusiveMinimum": true})", {"2.5"}, {"2", "1"}},
        Sample{R"({"type": "number", "multipleOf": 0.25})",
               {"0", "0.5", "1.25", "-3.750"},
               {"0.3", "1.255"}},
        Sample{R"({"type": "integer", "multipleOf": 7})", {"0", "14", "-21"}, {"1", "13"}},
        Sample{R"({"enum": ["a\n", 1, null, {"x": [1]}]})",
               {R"("a\n")", "1", "null", R"({"x":[1]})"},
               {"\"a\"", "2", "{}"}},
        Sample{R"({"const": "é"})", {"\"é\""}, {"\"e\""}}));

INSTANTIATE_TEST_SUITE_P(
    Strings, JsonSchemaTest,
    testing::Values(
        Sample{R"({"type": "string", "minLength": 2, "maxLength": 3})",
               {R"("ab")", R"("äöü")", R"("\n\u00e9")", R"("\ud83d\ude00x")", R"("😀😀")"},
               {R"("a")", R"("abcd")", R"("\ud83dx")", R"("\udc00xx")", "\"a\nb\""}},
        Sample{R"({"type": "string", "pattern": "^[a-c]+(x|y)?\\d{2,3}$"})",
               {R"("a12")", R"("cabx123")"},
               {R"("12")", R"("a1")", R"("ax1234")", R"("a12 ")"}},
        Sample{R"({"type": "string", "pattern": "b\"?\\\\"})",
               {R"("aab\\c")", R"("b\"\\")"},
               {R"("b")", R"("b\\\")"}},
        Sample{R"({"type": "string", "pattern": "^a.*$", "minLength": 2, "maxLength": 3})",
               {R"("ab")", R"("aéé")"},
               {R"("a")", R"("aéée")", R"("ba")"}},
        Sample{R"({"type": "string", "pattern": "\\d$", "maxLength": 10000})",
               {R"("7")", R"("aaaaaaaaaaaaaaa7")"},
               {R"("")", R"("7a")"}},
        Sample{R"({"type": "string", "format": "date"})",
               {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
               {R"("2023-02-29")", R"("1900-02-29")", R"("1999-04-31")", R"("1999-13-01")"}},
        Sample{R"({"type": "string", "format": "ipv6"})",
               {R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("fe80::1:2")", R"("::")"},
               {R"("1:2")", R"("1::2::3")", R"("12345::")"}},
        Sample{R"({"type": "string", "not": {"enum": ["a", "ab"]}})",
               {R"("")", R"("b")", R"("abc")"},
               {R"("a")", R"("ab")", "1"}}));

INSTANTIATE_TEST_SUITE_P(
    Objects, JsonSchemaTest,
    testing::Values(
        Sample{R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}},
                   "required": ["b"], "additionalProperties": false})",
               {R"({"a":1,"b":[]})", R"({"b":null})"},
               {R"({"a":1})", R"({"b":1,"a":1})", R"({"a":"x","b":1})", R"({"b":1,"c":1})"}},
        Sample{R"({"type": "object", "properties": {"a": {"type": "integer"}}})",
               {R"({})", R"({"a":1,"b":2})", R"({"b":2})", R"({"aa":"x"})"},
               {R"({"a":"x"})", R"({"b":1,"a":"x"})", R"({,})", R"({"a":1,})"}},
        Sample{R"({"type": "object", "patternProperties": {"^i": {"type": "integer"},
                   "s$": {"maximum": 5}}, "additionalProperties": {"type": "string"}})",
               {R"({"i":7,"s":"x","is":5,"z":""})"},
               {R"({"i":""})", R"({"is":6})", R"({"is":""})", R"({"z":1})"}},
        Sample{R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2,
                   "maxProperties": 2, "additionalProperties": false})",
               {R"({"a":1,"c":1})", R"({"b":1,"c":1})"},
               {R"({"a":1})", R"({"a":1,"b":1,"c":1})"}},
        Sample{R"({"type": "object", "propertyNames": {"maxLength": 2}, "maxProperties": 1})",
               {R"({})", R"({"ab":1})"},
               {R"({"abc":1})", R"({"a":1,"b":1})"}},
        Sample{R"({"type": "object", "properties": {"a": {}, "b": {}},
                   "dependentRequired": {"a": ["b"]}, "additionalProperties": false})",
               {R"({})", R"({"a":1,"b":1})", R"({"b":1})"},
               {R"({"a":1})"}},
        Sample{R"({"type": "object", "properties": {"kind": {"enum": ["x", "y"]}, "v": {}},
                   "required": ["kind", "v"], "additionalProperties": false,
                   "if": {"properties": {"kind": {"const": "x"}}},
                   "then": {"properties": {"v": {"type": "integer"}}},
                   "else": {"properties": {"v": {"type": "null"}}}})",
               {R"({"kind":"x","v":1})", R"({"kind":"y","v":null})"},
               {R"({"kind":"x","v":null})", R"({"kind":"y","v":1})"}}));

INSTANTIATE_TEST_SUITE_P(
    Arrays, JsonSchemaTest,
    testing::Values(
        Sample{R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
               {"[1,2]", "[1,2,3]"},
               {"[]", "[1]", "[1,2,3,4]", "[1,\"\"]", "[1,]"}},
        Sample{R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}],
                   "items": {"type": "integer"}, "maxItems": 4})",
               {"[]", "[null]", "[null,\"\",1,2]"},
               {"[1]", "[null,1]", "[null,\"\",\"\"]", "[null,\"\",1,2,3]"}},
        Sample{
            R"({"type": "array", "prefixItems": [{}], "items": false})", {"[]", "[1]"}, {"[1,2]"}},
        Sample{R"({"type": "array", "items": {"type": ["null", "integer"]},
                   "contains": {"type": "null"}, "minContains": 2})",
               {"[null,null]", "[1,null,2,null,null]"},
               {"[]", "[null]", "[1,null]"}},
        Sample{R"({"type": "array", "items": {"type": ["null", "integer"]},
                   "contains": {"type": "null"}, "minContains": 0, "maxContains": 2})",
               {"[]", "[1,null,null,1]"},
               {"[null,null,null]", "[null,1,null,1,null]"}}));

INSTANTIATE_TEST_SUITE_P(
    ItemsThatDiffer, JsonSchemaTest,
    testing::Values(
        Sample{R"({"type": "array", "items": {"enum": ["a", 1, [1], 1.0]}, "uniqueItems": true})",
               {"[]", R"(["a",1,[1]])", "[[1],1]"},
               {R"(["a","a"])", "[1,1]", "[1,1.0]", "[2]"}},
        Sample{R"({"type": "array", "items": {"type": ["boolean", "null"]}, "uniqueItems": true,
                   "contains": {"type": "boolean"}, "minContains": 2})",
               {"[true,false]", "[null,false,true]"},
               {"[true]", "[true,true]", "[true,null]"}},
        Sample{R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
                   "items": {"enum": ["a", "b", 3]}, "uniqueItems": true})",
               {R"(["x",1,"a","b",3])", R"(["a",3,"b"])"},
               {R"(["a",1,"a"])", R"(["x",3,3])", R"([1])", R"(["x",1,"c"])"}},
        Sample{R"({"type": "array", "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]},
                   "maxItems": 2, "uniqueItems": true})",
               {"[12]", "[1,12]"},
               {"[1,1]", "[1,2,3]"}}));

INSTANTIATE_TEST_SUITE_P(
    WhatIsNotSo, JsonSchemaTest,
    testing::Values(
        Sample{R"({"not": {"type": "integer"}})", {"1.5", "-0.001", "null"}, {"1", "1.0", "-3"}},
        Sample{R"({"type": "integer", "not": {"multipleOf": 3}})", {"1", "-4"}, {"0", "3", "-9"}},
        Sample{R"({"type": "number", "not": {"multipleOf": 0.5}})", {"0.25", "1.75"}, {"1", "2.5"}},
        Sample{R"({"not": {"not": {"type": "null"}}})", {"null"}, {"1"}},
        Sample{R"({"type": "number", "not": {"minimum": 2, "exclusiveMinimum": true}})",
               {"2", "-1.5"},
               {"2.5"}},
        Sample{R"({"type": "array", "not": {"const": [1, 2]}})",
               {"[]", "[1]", "[2,1]", "[1,2,3]"},
               {"[1,2]", "1"}},
        Sample{R"({"type": "object", "not": {"enum": [{"a": 1}, {}]}})",
               {R"({"a":2})", R"({"b":1})", R"({"a":1,"b":1})"},
               {R"({"a":1})", "{}"}},
        Sample{R"({"not": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "type": "number"})",
               {"3", "1.5"},
               {"1", "2.5"}},
        Sample{R"({"type": "integer", "not": {"if": {"minimum": 5}, "then": {"maximum": 7}}})",
               {"8"},
               {"4", "6"}},
        Sample{R"({"type": "array", "not": {"prefixItems": [{"type": "null"}, {"const": 1}]}})",
               {"[1]", "[null,2]"},
               {"[]", "[null]", "[null,1,2]"}},
        Sample{R"({"enum": [{"a": 1}, {"a": "x"}, [1], []], "properties": {"a": {"minimum": 1}},
                   "minItems": 1})",
               {R"({"a":1})", R"({"a":"x"})", "[1]"},
               {"[]", R"({"a":0})"}}));

INSTANTIATE_TEST_SUITE_P(
    Compositions, JsonSchemaTest,
    testing::Values(
        Sample{R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
               {"12", "\"a\""},
               {"\"ab\"", "null"}},
        Sample{R"({"allOf": [{"minimum": 3}, {"maximum": 5}], "type": "integer"})",
               {"3", "5"},
               {"2", "6"}},
        Sample{
            R"({"oneOf": [{"type": "integer", "maximum": 4}, {"type": "integer", "minimum": 5}]})",
            {"4", "5"},
            {"\"\""}},
        Sample{R"({"oneOf": [{"type": "integer", "multipleOf": 1, "maximum": 6}, {"type": "null"},
                   {"enum": [7, null]}], "type": "integer"})",
               {"6", "7"},
               {"8"}},
        Sample{R"({"oneOf": [
                  {"type": "object", "properties": {"k": {"const": "a"}, "v": {"type": "null"}},
                   "required": ["k", "v"]},
                  {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
               {R"({"k":"a","v":null})", R"({"k":"b"})"},
               {R"({"k":"a"})", R"({"k":"c"})"}},
        Sample{
            R"({"type": "integer", "not": {"minimum": 3, "maximum": 5}})", {"2", "6"}, {"3", "5"}},
        Sample{R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
                  "value": {"type": "integer"},
                  "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                  "required": ["value"], "additionalProperties": false}}})",
               {R"({"value":1,"children":[{"value":2,"children":[]},{"value":3}]})"},
               {R"({"value":1,"children":[{}]})", R"({"value":1,"children":[1]})"}},
        Sample{R"({"$id": "http://a.org/tree", "type": "object", "additionalProperties": false,
                   "properties": {"nodes": {"type": "array", "items": {"$ref": "node"}}},
                   "$defs": {"any name": {"$id": "node", "type": "object",
                     "additionalProperties": false, "properties": {"sub": {"$ref": "tree"},
                       "x": {"$ref": "#/$defs/x"}, "y": {"$ref": "http://a.org/tree#y"}},
                     "$defs": {"x": {"type": "integer"}}}, "z": {"$anchor": "y", "const": 2}}})",
               {R"({"nodes":[{"sub":{"nodes":[{"x":1}]}},{"x":1,"y":2}]})"},
               {R"({"nodes":[{"x":""}]})", R"({"nodes":[{"sub":{"x":1}}]})",
                R"({"nodes":[{"y":1}]})"}},
        Sample{R"({"a~b": {"type": "null"}, "c/d": {"type": "integer"}, "e%f": {"const": "x"},
                   "prefixItems": [{"$ref": "#/a~0b"}, {"$ref": "#/c~1d"}, {"$ref": "#/e%25f"},
                     {"$ref": "#/prefixItems/1"}], "type": "array"})",
               {R"([null,1,"x",2])"},
               {"[1]", R"([null,""])", R"([null,1,1])", R"([null,1,"x","x"])"}}));

TEST(JsonSchemaRefusalTest, NamesKeywordAndPlace) {
  EXPECT_THAT(
      refusal(R"({"properties": {"a": {"unevaluatedItems": false}}})"),
      testing::AllOf(testing::HasSubstr("unevaluatedItems"), testing::HasSubstr("#/properties/a")));
  EXPECT_THAT(refusal(R"({"type": "string", "pattern": "(a)\\1"})"),
              testing::HasSubstr("'pattern'"));
  EXPECT_THAT(refusal(R"({"type": "string", "format": "idn-email"})"),
              testing::HasSubstr("'idn-email' is not supported"));
  EXPECT_THAT(refusal(R"({"type": "string", "format": "datetime"})"),
              testing::HasSubstr("did you mean 'date-time'?"));
  EXPECT_EQ(refusal(R"({"type": "integer", "format": "int32"})"), "");
  EXPECT_THAT(refusal(R"({"not": {"format": "email"}})"), testing::HasSubstr(R"(no "email")"));
  EXPECT_THAT(refusal(R"({"$ref": "other.json"})"), testing::HasSubstr("$ref"));
  EXPECT_THAT(refusal(R"({"$ref": "#/$defs/a", "$defs": {}})"),
              testing::HasSubstr("there is no '#/$defs/a'"));
  EXPECT_THAT(refusal(R"({"$ref": "#a", "$defs": {"b": {"$anchor": "a"}, "c": {"$anchor": "a"}}})"),
              testing::HasSubstr("#/$defs/c: '$anchor': '#a' is #/$defs/b already"));
  EXPECT_THAT(refusal(R"({"properties": {"a": {"minlenght": 3}}})"),
              testing::HasSubstr("#/properties/a: 'minlenght': there is no such keyword; did you "
                                 "mean 'minLength'?"));
  EXPECT_EQ(refusal(R"({"order": 3, "widget": {"type": 3}, "x-type": 1})"), "");
  EXPECT_THAT(refusal(R"({"type": "array", "uniqueItems": true})"),
              testing::HasSubstr("uniqueItems"));
  EXPECT_THAT(refusal("{"), testing::HasSubstr("not valid JSON"));
  for (const char* schema : {R"({"properties": 3})", R"({"required": "a"})", R"({"allOf": {}})",
                             R"({"uniqueItems": 3})", R"({"dependentRequired": {"a": 1}})"}) {
    EXPECT_THAT(refusal(schema), testing::HasSubstr("schema, #")) << schema;
  }
  EXPECT_THAT(refusal(std::string(100'000, '[')), testing::HasSubstr("brackets"));
  EXPECT_THAT(refusal("[1]"), testing::HasSubstr("an object, true or false"));
}

TEST(JsonSchemaRefusalTest, WhatNothingSatisfies) {
  for (const char* schema :
       {"false", R"({"type": "integer", "minimum": 3, "maximum": 2})",
        R"({"type": "string", "minLength": 3, "maxLength": 2})", R"({"enum": []})",
        R"({"type": "object", "required": ["a"], "additionalProperties": false})",
        R"({"type": "array", "items": false, "minItems": 3})",
        R"({"type": "string", "pattern": "^a{4}", "maxLength": 3})",
        R"({"allOf": [{"type": "string"}, {"type": "null"}]})"}) {
    EXPECT_THAT(refusal(schema), testing::HasSubstr("no text satisfies it")) << schema;
  }
}

TEST(JsonSchemaRefusalTest, WhatRecursWithoutEnd) {
  EXPECT_THAT(refusal(R"({"$ref": "#"})"), testing::HasSubstr("without end"));
  EXPECT_THAT(refusal(R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})"),
              testing::HasSubstr("without end"));
  // Branches that are told apart by a property which is the whole again.
  constexpr std::string_view kBranch =
      R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})";
  EXPECT_NE(refusal(fmt::format(R"({{"oneOf": [{}, {}]}})", kBranch, kBranch)), "");
  EXPECT_THAT(refusal(R"({"oneOf": [{"enum": [[1]], "items": {"$ref": "#"}}, {"type": "array"}]})"),
              testing::HasSubstr("without end"));
  EXPECT_THAT(
      refusal(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
      testing::HasSubstr("again and again"));
}

TEST(JsonSchemaRefusalTest, WhatIsTooLarge) {
  EXPECT_THAT(refusal("{\"title\": \"" + std::string(1 << 18, 'x') + "\"}"),
              testing::HasSubstr("bytes"));
  std::string branches;
  for (int i = 0; i < 40; ++i) {
    branches += R"({"anyOf": [{"type": "object", "required": ["a)" + std::to_string(i) +
                R"("]}, {"type": "object", "required": ["b"]}]},)";
  }
  branches.back() = ']';
  EXPECT_THAT(refusal("{\"allOf\": [" + branches + "}"), testing::HasSubstr("combinations"));
}

TEST(JsonSchemaTest, DepthIsBoundedAndCanAlwaysEnd) {
  SchemaOptions options{.blanks = Blanks::kNone};
  options.limits.depth = 5;
  const auto grammar = schema_grammar(R"({"type": "array", "items": {"$ref": "#"}})", options);
  std::string text = "[";
  Machine machine(*grammar);
  while (!machine.advance(machine.begin(), text).tops.empty()) text += "[";
  EXPECT_LE(text.size(), 8U);
  text.pop_back();
  EXPECT_TRUE(takes(*grammar, text + std::string(text.size(), ']')));
}

TEST(JsonSchemaTest, BlanksAreBounded) {
  const auto grammar = schema_grammar(R"({"type": "object"})");
  EXPECT_TRUE(takes(*grammar, "{ \"a\": 1,\n  \"b\": [ 1, 2 ]\n}"));
  EXPECT_FALSE(takes(*grammar, "{  \"a\": 1}"));
  EXPECT_FALSE(takes(*grammar, "{\n\n\"a\": 1}"));
  EXPECT_TRUE(takes(*grammar, "{\n" + std::string(40, ' ') + "}"));
  EXPECT_FALSE(takes(*grammar, "{\n" + std::string(41, ' ') + "}"));
}

TEST(JsonSchemaTest, ChoicesAreTextsAsTheyAre) {
  const auto grammar = choice_grammar(std::vector<std::string>{"yes", "no", "no way"});
  Machine machine(*grammar);
  const auto takes = [&](std::string_view text) {
    return machine.advance(machine.begin(), text).may_end;
  };
  EXPECT_TRUE(takes("yes") && takes("no") && takes("no way"));
  EXPECT_FALSE(takes("ye") || takes("\"yes\"") || takes("no w") || takes(""));
  EXPECT_THROW(choice_grammar({}), InputError);
  EXPECT_THROW(choice_grammar(std::vector<std::string>{""}), InputError);
  EXPECT_THROW(choice_grammar(std::vector<std::string>{std::string(300'000, 'x')}), InputError);
}

TEST(JsonSchemaTest, LargeSchemasAreRefusedSoon) {
  std::string properties, branches;
  for (int i = 0; i < 4000; ++i) properties += fmt::format(R"("p{}": true,)", i);
  for (int i = 0; i < 500; ++i) branches += fmt::format(R"({{"const": {}}},)", i);
  properties.pop_back();
  branches.pop_back();
  EXPECT_THROW(schema_grammar(R"({"type": "object", "properties": {)" + properties + "}}"),
               InputError);
  EXPECT_THROW(schema_grammar(R"({"oneOf": [)" + branches + "]}"), InputError);
}

}  // namespace
}  // namespace atl::grammar
