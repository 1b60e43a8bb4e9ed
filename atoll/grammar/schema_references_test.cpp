#include "atoll/grammar/schema_references.h"

#include <gtest/gtest.h>

namespace atl::grammar {
namespace {

// The examples of RFC 3986, 5.4, as far as their bases are URIs of schemas.
TEST(SchemaReferencesTest, ResolvesAsTheRfcSays) {
  constexpr std::string_view kBase = "http://a/b/c/d?q";
  EXPECT_EQ(resolve_uri(kBase, "g"), "http://a/b/c/g");
  EXPECT_EQ(resolve_uri(kBase, "./g/"), "http://a/b/c/g/");
  EXPECT_EQ(resolve_uri(kBase, "/g"), "http://a/g");
  EXPECT_EQ(resolve_uri(kBase, "//g"), "http://g");
  EXPECT_EQ(resolve_uri(kBase, "?y"), "http://a/b/c/d?y");
  EXPECT_EQ(resolve_uri(kBase, "g?y/../x"), "http://a/b/c/g?y/../x");
  EXPECT_EQ(resolve_uri(kBase, "#s"), "http://a/b/c/d?q#s");
  EXPECT_EQ(resolve_uri(kBase, "g#s/./x"), "http://a/b/c/g#s/./x");
  EXPECT_EQ(resolve_uri(kBase, ""), "http://a/b/c/d?q");
  EXPECT_EQ(resolve_uri(kBase, "."), "http://a/b/c/");
  EXPECT_EQ(resolve_uri(kBase, "../g"), "http://a/b/g");
  EXPECT_EQ(resolve_uri(kBase, "../../../g"), "http://a/g");
  EXPECT_EQ(resolve_uri(kBase, "g:h"), "g:h");
}

TEST(SchemaReferencesTest, BasesMayBeRelativeOrWithoutPath) {
  EXPECT_EQ(resolve_uri("", "#/a"), "#/a");
  EXPECT_EQ(resolve_uri("", "node"), "node");
  EXPECT_EQ(resolve_uri("tree.json", "node.json#x"), "node.json#x");
  EXPECT_EQ(resolve_uri("http://a", "node"), "http://a/node");
  EXPECT_EQ(resolve_uri("http://a/b#", "#/c"), "http://a/b#/c");
  EXPECT_EQ(resolve_uri("urn:example:a", "#b"), "urn:example:a#b");
}

}  // namespace
}  // namespace atl::grammar
