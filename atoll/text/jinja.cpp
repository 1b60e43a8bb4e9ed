#include "atoll/text/jinja.h"

#include <fmt/format.h>

#include "atoll/base/error.h"
#include "atoll/text/jinja_evaluator.h"
#include "atoll/text/jinja_names.h"
#include "atoll/text/jinja_parser.h"

namespace atl::text {

JinjaTemplate::JinjaTemplate(const std::string& source, const JinjaOptions& options,
                             std::string name) {
  try {
    auto made = std::make_unique<jinja::Template>();
    made->name = name;
    made->options = options;
    made->body = jinja::parse(jinja::tokenize(source, options), options);
    made->unset = jinja::mark_unset_names(made->body);
    template_ = std::move(made);
  } catch (const jinja::SourceFailure& failure) {
    throw InputError(fmt::format("{}, line {}: {}", name, failure.line, failure.what()));
  }
}

JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

std::string JinjaTemplate::render(const nlohmann::ordered_json& variables) const {
  int line = 0;
  try {
    jinja::Evaluator evaluator(*template_, variables);
    try {
      return evaluator.run();
    } catch (...) {
      line = evaluator.line();
      throw;
    }
  } catch (const jinja::Failure& failure) {
    throw InputError(line == 0
                         ? fmt::format("{}: {}", template_->name, failure.what())
                         : fmt::format("{}, line {}: {}", template_->name, line, failure.what()));
  } catch (const InputError& error) {  // Of letter case.
    throw InputError(fmt::format("{}, line {}: {}", template_->name, line, error.what()));
  }
}

}  // namespace atl::text
