#pragma once
// Where "$ref" leads within a document: "$id" gives parts of it URIs, against which references are
// resolved (RFC 3986), "$anchor" gives them names. Other documents are never fetched.
#include <map>
#include <string>
#include <string_view>

#include "atoll/grammar/schema_case.h"

namespace atl::grammar {

class SchemaReferences {
 public:
  /// The schema that the "$ref" of `node` names. Throws InputError where there is none.
  SchemaNode resolve(const SchemaNode& node);

 private:
  using Places = std::map<std::string, SchemaNode>;  // By URI, those of anchors with their #.
  static void find_places(const SchemaNode& node, Places& places);
  std::map<const Json*, Places> documents_;
};

/// `reference` as it is meant at `base`; both may be relative.
std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace atl::grammar
