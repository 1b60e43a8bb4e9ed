#pragma once
// Templates in the part of Jinja2's language that models' chat templates and evaluation tasks use,
// equal to Jinja2 3.1's result to the byte. What this version does not know (a tag, a filter, a
// test, a method) is refused by name, most of it when the template is read: other text would be
// worse than none. docs/formats.md lists what there is.
//
// Templates come from strangers: they reach nothing but the variables they are given, and their
// steps, sizes and depth are bounded. A JinjaTemplate never changes and may be shared by threads.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace atl::text {

/// Jinja2's options of the same names, and whose templates they are.
struct JinjaOptions {
  bool trim_blocks = false;            // A tag takes the line end behind it.
  bool lstrip_blocks = false;          // And the spaces before it, where nothing else is there.
  bool keep_trailing_newline = false;  // The one at the template's end.
  bool strict_undefined = false;       // A variable that is not there is an error, not "".
  // What transformers adds for chat templates: break, continue, generation, raise_exception,
  // strftime_now, and a `tojson` that writes plain JSON (Jinja2's own sorts keys and writes <, >,
  // &, ' and what is not ASCII as \u00NN).
  bool transformers = false;
};

/// transformers' options for chat templates.
inline constexpr JinjaOptions kChatTemplate{
    .trim_blocks = true, .lstrip_blocks = true, .transformers = true};

namespace jinja {
struct Template;
}

class JinjaTemplate {
 public:
  /// `name` appears in messages. Throws InputError: what is wrong or not supported, and the line.
  JinjaTemplate(const std::string& source, const JinjaOptions& options, std::string name);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  /// The text. `variables` is an object: what the template sees. Throws InputError with the line,
  /// also where the template itself calls raise_exception, and where it goes beyond the bounds.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  std::unique_ptr<const jinja::Template> template_;
};

}  // namespace atl::text
