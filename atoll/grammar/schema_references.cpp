#include "atoll/grammar/schema_references.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/text/python_text.h"

namespace atl::grammar {
namespace {

constexpr std::string_view kWithSchema[] = {
    "not",           "if",           "then",  "else",  "items", "additionalItems",
    "prefixItems",   "contains",     "allOf", "anyOf", "oneOf", "additionalProperties",
    "propertyNames", "contentSchema"};
constexpr std::string_view kWithNamedSchemas[] = {
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"};

/// The length of "scheme:"; 0 where there is none.
size_t scheme_length(std::string_view uri) {
  const size_t end = uri.find_first_of(":/?#");
  return end == std::string_view::npos || uri[end] != ':' ? 0 : end + 1;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  const auto segments = text::split(path, "/", -1);
  for (size_t i = 0; i < segments.size(); ++i) {
    const bool is_dots = segments[i] == "." || segments[i] == "..";
    if (segments[i] == ".." && kept.size() > 1) kept.pop_back();
    if (!is_dots) kept.push_back(segments[i]);
    if (is_dots && i + 1 == segments.size()) kept.emplace_back();
  }
  return fmt::format("{}", fmt::join(kept, "/"));
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2) {
      decoded += static_cast<char>(code);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

/// One step of a JSON pointer; nothing where it leads nowhere.
std::optional<SchemaNode> step_down(const SchemaNode& node, std::string_view written) {
  const std::string key =
      text::replace_text(text::replace_text(written, "~1", "/", -1), "~0", "~", -1);
  const Json* value = nullptr;
  if (node.schema->is_object() && node.schema->contains(key)) value = &node.schema->at(key);
  if (node.schema->is_array()) {
    size_t index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = error == std::errc() && end == key.data() + key.size();
    if (is_index && index < node.schema->size()) value = &node.schema->at(index);
  }
  if (value == nullptr) return {};
  return SchemaNode{value, node.root, fmt::format("{}/{}", node.path, written), base_of(node)};
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  base = base.substr(0, base.find('#'));
  const size_t scheme = scheme_length(base);
  if (scheme_length(reference) > 0) return std::string(reference);
  if (reference.empty() || reference.starts_with('#')) return fmt::format("{}{}", base, reference);
  if (reference.starts_with("//")) return fmt::format("{}{}", base.substr(0, scheme), reference);
  size_t root = scheme;  // Where the path begins.
  if (base.substr(scheme).starts_with("//"))
    root = std::min(base.find('/', scheme + 2), base.size());
  std::string_view path = base.substr(root, base.find('?', root) - root);
  if (reference.starts_with('?')) {
    return fmt::format("{}{}{}", base.substr(0, root), path, reference);
  }
  const bool has_host = root > scheme && path.empty();
  path = reference.starts_with('/') ? "" : path.substr(0, path.rfind('/') + 1);
  const size_t end = std::min(reference.find_first_of("?#"), reference.size());
  const std::string whole = fmt::format(
      "{}{}{}", has_host && !reference.starts_with('/') ? "/" : "", path, reference.substr(0, end));
  return fmt::format("{}{}{}", base.substr(0, root), without_dots(whole), reference.substr(end));
}

std::string base_of(const SchemaNode& node) {
  if (!node.schema->is_object() || !node.schema->contains("$id")) return node.base;
  const Json& id = node.schema->at("$id");
  if (!id.is_string()) return node.base;
  std::string uri = resolve_uri(node.base, id.get_ref<const std::string&>());
  uri.resize(std::min(uri.find('#'), uri.size()));
  return uri;
}

void SchemaReferences::find_places(const SchemaNode& node, Places& places) {
  if (!node.schema->is_object()) return;
  const std::string base = base_of(node);
  const auto add = [&](const std::string& keyword, const std::string& uri) {
    const auto [place, is_new] = places.emplace(uri, node);
    if (!is_new) refuse(node, keyword, fmt::format("'{}' is #{} already", uri, place->second.path));
  };
  for (const auto& [keyword, value] : node.schema->items()) {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (keyword == "$anchor" || keyword == "$dynamicAnchor") add(keyword, base + "#" + text);
      // Before "$anchor" came, an anchor was an "$id" with a # in front.
      const bool is_anchor = text.starts_with('#');
      if (keyword == "$id" && is_anchor && !text.starts_with("#/")) add(keyword, base + text);
      if (keyword == "$id" && !is_anchor && node.schema != node.root) add(keyword, base);
    } else if (std::ranges::find(kWithNamedSchemas, keyword) != std::end(kWithNamedSchemas)) {
      if (!value.is_object()) continue;
      for (const auto& [name, schema] : value.items()) {
        find_places(child(node, keyword, name), places);
      }
    } else if (std::ranges::find(kWithSchema, keyword) != std::end(kWithSchema)) {
      if (!value.is_array()) find_places(child(node, keyword), places);
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        find_places(child(node, keyword, i), places);
      }
    }
  }
}

SchemaNode SchemaReferences::resolve(const SchemaNode& node) {
  const Json& value = node.schema->at("$ref");
  if (!value.is_string()) refuse(node, "$ref", "it must be a text");
  const auto& reference = value.get_ref<const std::string&>();
  const auto [document, is_new] = documents_.try_emplace(node.root);
  if (is_new) {
    const SchemaNode root{node.root, node.root, "", ""};
    document->second.emplace(base_of(root), root);
    find_places(root, document->second);
  }
  std::string uri = resolve_uri(base_of(node), reference);
  const size_t hash = std::min(uri.find('#'), uri.size());
  const std::string fragment = hash == uri.size() ? "" : percent_decoded(uri.substr(hash + 1));
  const bool is_pointer = fragment.empty() || fragment.starts_with('/');
  uri.resize(hash);
  const auto resource = document->second.find(is_pointer ? uri : uri + "#" + fragment);
  if (resource == document->second.end()) {
    refuse(node, "$ref", fmt::format("'{}' is not within the schema", reference));
  }
  SchemaNode target = resource->second;
  if (!is_pointer || fragment.empty()) return target;
  for (const std::string_view step : text::split(std::string_view(fragment).substr(1), "/", -1)) {
    auto next = step_down(target, step);
    if (!next) refuse(node, "$ref", fmt::format("there is no '{}'", reference));
    target = *std::move(next);
  }
  return target;
}

}  // namespace atl::grammar
