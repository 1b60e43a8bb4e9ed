// Schemas from strangers: a grammar comes of them, or an InputError, within bounds; and what a
// grammar allows can always be finished. Inputs are also used to put schemas together of pieces.
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/grammar/json_schema.h"
#include "atoll/grammar/machine.h"

namespace atl::grammar {
namespace {

constexpr std::string_view kPieces[] = {R"({"type":"object"})",
                                        R"({"type":"string"})",
                                        R"("type":["integer","null"])",
                                        "true",
                                        "false",
                                        R"("properties":{"a":)",
                                        R"("b":)",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        R"("required":["a","b"])",
                                        R"("additionalProperties":)",
                                        R"("patternProperties":{"^a":)",
                                        R"("items":)",
                                        R"("prefixItems":[)",
                                        R"("minItems":2)",
                                        R"("maxItems":3)",
                                        R"("enum":[1,"a",null,[]])",
                                        R"("const":{"a":1})",
                                        R"("anyOf":[)",
                                        R"("oneOf":[)",
                                        R"("allOf":[)",
                                        R"("not":)",
                                        R"("if":)",
                                        R"("then":)",
                                        R"("else":)",
                                        R"("$ref":"#")",
                                        R"("$ref":"#/properties/a")",
                                        R"("pattern":"^a{2,9}(b|c)*$")",
                                        R"x("pattern":"(x)")x",
                                        R"("format":"date")",
                                        R"("minLength":3)",
                                        R"("maxLength":5)",
                                        R"("minimum":-1.5)",
                                        R"("exclusiveMaximum":1e3)",
                                        R"("multipleOf":0.3)",
                                        R"("minProperties":1)",
                                        R"("maxProperties":2)",
                                        R"("propertyNames":)",
                                        R"("contains":)",
                                        R"("uniqueItems":true)",
                                        R"("maxContains":1)",
                                        R"("$id":"a")",
                                        R"("$ref":"a#/items")",
                                        R"("$anchor":"b","$ref":"#b")",
                                        R"("dependentRequired":{"a":["b"]})",
                                        R"("properties":3)",
                                        R"("required":{"a":1})",
                                        R"("items":3)",
                                        R"("allOf":{})"};

void run(std::string_view schema, const uint8_t* data, size_t size) {
  SchemaOptions options;
  options.limits = {.rules = 500, .states = 20'000, .rule_states = 500, .depth = 12};
  try {
    const auto grammar = schema_grammar(schema, options);
    Machine machine(*grammar);
    Place place = machine.begin();
    std::vector<Frame> to;
    // What the input picks of the bytes that are allowed: there is always one, or an end.
    for (size_t i = 0; i < 40 && !place.tops.empty(); ++i) {
      std::string allowed;
      for (int byte = 0; byte < 256; ++byte) {
        machine.load(place);
        const auto outcome = machine.step(place.tops, static_cast<uint8_t>(byte), to);
        if (!to.empty() || outcome.ended) allowed += static_cast<char>(byte);
      }
      ATOLL_CHECK(!allowed.empty() || place.may_end, "a dead end");
      if (allowed.empty()) break;
      const size_t pick = size == 0 ? i : data[i % size];
      place = machine.advance(place, allowed.substr(pick % allowed.size(), 1));
    }
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using atl::grammar::kPieces;
  atl::grammar::run({reinterpret_cast<const char*>(data), size}, data, size);
  std::string schema = "{";
  for (size_t i = 0; i < size && i < 64; ++i) schema += kPieces[data[i] % std::size(kPieces)];
  atl::grammar::run(schema, data, size);
  // The pieces that go together as keywords beside each other, so that most pass the parser.
  schema = "{";
  for (size_t i = 0; i < size && i < 12; ++i) {
    const std::string_view piece = kPieces[data[i] % std::size(kPieces)];
    if (!piece.starts_with('"')) continue;
    if (schema.size() > 1) schema += ",";
    schema += piece;
    if (piece.ends_with(':')) schema += kPieces[data[i] % 2];
    if (piece.ends_with("{\"a\":") || piece.ends_with("{\"^a\":")) schema += "}";
    if (piece.ends_with(":[")) schema += R"({"type":"string"},{"type":"array"}])";
  }
  atl::grammar::run(schema + "}", data, size);
  return 0;
}
