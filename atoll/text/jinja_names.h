#pragma once
// Which names a scope assigns before anything else, as Jinja2's compiler finds out. Internal.
#include "atoll/text/jinja_syntax.h"

namespace atl::text::jinja {

/// Fills Statement::unset of all scopes in the template; returns the template's own.
std::vector<std::string> mark_unset_names(Block& body);

}  // namespace atl::text::jinja
